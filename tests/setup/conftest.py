"""An invented machine for the setup scripts.

The scripts run from a copy of the repository's tools, with a PATH that holds only what the test
puts there: the real text utilities, and recording fakes for everything that installs, compiles or
trains. System paths (/sys, /etc, /usr/local) are looked up under INGOT_SETUP_ROOT, a folder of the
test. Every call of a fake is one line of machine.calls().
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
REAL_TOOLS = (
    "awk basename bash cat chmod cmp cp cut dirname env expand find grep head ln ls mkdir mktemp mv nproc "
    "paste printf readlink rm sed sh sha256sum sort tail tee touch tr uname wc xargs"
).split()

# The headers and libraries that a probe finds; the fake package managers add to these files.
FAKE_GXX = """
if [ "$1" = --version ]; then echo "g++ (Fake) ${FAKE_GXX_VERSION:-12.2.0}"; exit 0; fi
last="${!#}"
case "$last" in -l*) exec grep -qxF "${last#-l}" "$MACHINE/libraries" ;; esac
header="$(sed -n 's/.*__has_include(<\\(.*\\)>).*/\\1/p')"
grep -qxF "$header" "$MACHINE/headers"
"""

# Installing a package makes what it provides appear; a name in unknown_packages is refused.
FAKE_INSTALLER = """
simulate=no
for word in "$@"; do
    case "$word" in --simulate) simulate=yes ;; esac
    if grep -qxF -- "$word" "$MACHINE/unknown_packages"; then
        echo "E: Unable to locate package $word" >&2
        exit 100
    fi
done
if [ "$1" = update ] && [ -e "$MACHINE/update_fails" ]; then exit 100; fi
case " $* " in *" install "*) ;; *) exit 0 ;; esac
[ "$simulate" = no ] || exit 0
for word in "$@"; do
    while read -r package kind thing; do
        [ "$package" = "$word" ] || continue
        case "$kind" in
            header) echo "$thing" >>"$MACHINE/headers" ;;
            library) echo "$thing" >>"$MACHINE/libraries" ;;
            command) cp "$MACHINE/shelf/$thing" "$MACHINE/bin/$thing" ;;
            ensurepip) touch "$MACHINE/ensurepip" ;;
        esac
    done <"$MACHINE/provides"
done
"""

FAKE_PYTHON = """
case "$*" in
    *ensurepip*) [ -e "$MACHINE/ensurepip" ] ;;
    *"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *"-m pip"*) [ ! -e "$MACHINE/pip_fails" ] ;;
    "-V") echo "Python ${FAKE_PYTHON_VERSION:-3.11.2}" ;;
    "-c pass") ;;
    *) exec "$REAL_PYTHON" "$@" ;;
esac
"""

DEBIAN_PROVIDES = """\
g++ command g++
cmake command cmake
ninja-build command ninja
make command make
git command git
doctest-dev header doctest/doctest.h
nlohmann-json3-dev header nlohmann/json.hpp
libcli11-dev header CLI/CLI.hpp
libxxhash-dev header xxhash.h
libopenblas-openmp-dev header cblas.h
libopenblas-openmp-dev library openblas
python3-venv ensurepip -
g++-11 command g++-11
clang-format-14 command clang-format-14
shellcheck command shellcheck
"""
RHEL_PROVIDES = """\
gcc-c++ command g++
cmake command cmake
ninja-build command ninja
make command make
git command git
doctest-devel header doctest/doctest.h
json-devel header nlohmann/json.hpp
cli11-devel header CLI/CLI.hpp
xxhash-devel header xxhash.h
openblas-devel header cblas.h
openblas-devel library openblas
python3.11 ensurepip -
"""
HEADERS = ["doctest/doctest.h", "nlohmann/json.hpp", "CLI/CLI.hpp", "xxhash.h", "cblas.h"]


class Machine:
    """A folder that plays a computer: root/ for the system, bin/ as PATH, repo/ as the clone."""

    def __init__(self, folder):
        self.folder = folder
        self.repo = folder / "repo"
        self.root = folder / "root"
        self.bin = folder / "bin"
        self.shelf = folder / "shelf"
        for path in (self.repo, self.root / "etc", self.root / "usr/local", self.bin, self.shelf):
            path.mkdir(parents=True)
        for name in REAL_TOOLS:
            (self.bin / name).symlink_to(shutil.which(name, path="/usr/bin:/bin"))
        for name in ("headers", "libraries", "unknown_packages", "provides", "log"):
            (folder / name).write_text("")
        shutil.copytree(REPO / "tools", self.repo / "tools", ignore=lambda *_: ["__pycache__"])
        shutil.copytree(REPO / "configs", self.repo / "configs")
        shutil.copytree(REPO / ".ci", self.repo / ".ci")
        shutil.copy(REPO / "Makefile", self.repo)
        self.env = {
            "PATH": str(self.bin),
            "MACHINE": str(folder),
            "HOME": str(folder),
            "INGOT_SETUP_ROOT": str(self.root),
            "INGOT_PYTHON": str(self.fake("python3", FAKE_PYTHON)),
            "REAL_PYTHON": "/usr/bin/python3",
        }
        self.user(0)

    def fake(self, name, body="", where=None):
        """A command that writes its name and arguments to the log, then runs the body."""
        path = (where or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(
            f'#!/bin/bash\necho "${{0##*/}} $*" >>"$MACHINE/log"\n{body.strip()}\n'
        )
        path.chmod(0o755)
        return path

    def user(self, uid):
        path = self.bin / "id"
        path.write_text(f"#!/bin/bash\necho {uid}\n")
        path.chmod(0o755)

    def debian(self):
        self.put("root/etc/os-release", 'ID=debian\nVERSION_ID="12"\n')
        self.put("provides", DEBIAN_PROVIDES)
        self.stock_shelf()
        self.fake("apt-get", FAKE_INSTALLER)
        return self

    def centos(self, os_id="centos"):
        self.put("root/etc/os-release", f'ID="{os_id}"\nVERSION_ID="9"\n')
        self.put("provides", RHEL_PROVIDES)
        self.stock_shelf()
        self.fake("dnf", FAKE_INSTALLER)
        return self

    def stock_shelf(self):
        """What the fake package managers put on the machine."""
        self.fake("g++", FAKE_GXX, self.shelf)
        self.fake("cmake", '[ "$1" != --version ] || echo "cmake version 3.25.1"', self.shelf)
        for name in ("ninja", "make", "git", "g++-11", "clang-format-14", "shellcheck"):
            self.fake(name, "", self.shelf)

    def complete(self):
        """Everything that the set `build` asks for is there."""
        self.stock_shelf()
        for name in ("g++", "cmake", "ninja", "make", "git"):
            shutil.copy(self.shelf / name, self.bin / name)
        self.put("headers", "\n".join(HEADERS) + "\n")
        self.put("libraries", "openblas\n")
        self.put("ensurepip", "")
        return self

    def put(self, relative, text):
        path = self.folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def pci_device(self, vendor="0x10de", device_class="0x030200", address="0000:3b:00.0"):
        base = f"root/sys/bus/pci/devices/{address}"
        self.put(f"{base}/vendor", vendor + "\n")
        self.put(f"{base}/class", device_class + "\n")
        return self

    def run(self, *command, **env):
        """Runs a script of the clone without a terminal; returns the finished process."""
        return self.start("bash", *command, **env)

    def make(self, target, **env):
        """Runs the real make on the clone's Makefile."""
        return self.start("/usr/bin/make", "--no-print-directory", target, **env)

    def start(self, *command, **env):
        return subprocess.run(
            list(command),
            cwd=self.repo,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def calls(self, *names):
        """The recorded calls of the named fakes (of all without a name), in order."""
        lines = (self.folder / "log").read_text().splitlines()
        return [line for line in lines if not names or line.split()[0] in names]

    def forget(self):
        (self.folder / "log").write_text("")


@pytest.fixture
def machine(tmp_path):
    assert os.access("/usr/bin/python3", os.X_OK), "the tests need the system's python3"
    return Machine(tmp_path)
