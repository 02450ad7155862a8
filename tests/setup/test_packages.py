"""tools/setup.sh packages: what is missing, how it is installed, and what is said when it cannot."""

DEBIAN_BUILD = (
    "g++ cmake ninja-build make git doctest-dev nlohmann-json3-dev libcli11-dev libxxhash-dev "
    "libopenblas-openmp-dev python3-venv"
)
APT_INSTALL = "apt-get install -y --no-install-recommends "


def test_a_complete_machine_calls_no_package_manager(machine):
    machine.debian().complete()
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 0, done.stderr
    assert "all there" in done.stdout
    assert machine.calls("apt-get", "sudo") == []


def test_root_on_a_bare_debian_installs_everything_in_one_command(machine):
    machine.debian()
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 0, done.stderr
    assert machine.calls("apt-get") == ["apt-get update", APT_INSTALL + DEBIAN_BUILD]
    machine.forget()
    assert machine.run("tools/setup.sh", "packages", "build").returncode == 0
    assert machine.calls("apt-get") == []


def test_only_what_is_missing_is_installed(machine):
    machine.debian().complete()
    machine.put("headers", "doctest/doctest.h\nnlohmann/json.hpp\nCLI/CLI.hpp\ncblas.h\n")
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 0, done.stderr
    assert machine.calls("apt-get")[-1] == APT_INSTALL + "libxxhash-dev"


def test_the_header_of_another_blas_is_not_openblas(machine):
    machine.debian().complete()
    machine.put("libraries", "blas\n")
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 0, done.stderr
    assert machine.calls("apt-get")[-1] == APT_INSTALL + "libopenblas-openmp-dev"


def test_the_set_ci_adds_the_formatter_the_old_compiler_and_shellcheck(machine):
    machine.debian().complete()
    done = machine.run("tools/setup.sh", "packages", "ci")
    assert done.returncode == 0, done.stderr
    assert machine.calls("apt-get")[-1] == APT_INSTALL + "g++-11 clang-format-14 shellcheck"


def test_an_old_cmake_counts_as_missing(machine):
    machine.debian().complete()
    machine.fake("cmake", 'echo "cmake version 3.18.4"')
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 0, done.stderr
    assert machine.calls("apt-get")[-1] == APT_INSTALL + "cmake"


def test_without_root_and_sudo_one_command_is_printed_and_nothing_is_run(machine):
    machine.debian()
    machine.user(1000)
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 1
    assert f"missing system packages: {DEBIAN_BUILD}" in done.stderr
    printed = [line for line in done.stderr.splitlines() if "apt-get" in line]
    assert printed == [
        "  fix: as root: apt-get update && DEBIAN_FRONTEND=noninteractive "
        + APT_INSTALL
        + DEBIAN_BUILD
    ]
    assert machine.calls("apt-get") == []


def test_the_printed_command_installs_what_is_missing(machine):
    machine.debian()
    machine.user(1000)
    refused = machine.run("tools/setup.sh", "packages", "build")
    command = refused.stderr.split("fix: as root: ")[1]
    assert machine.run("-c", command).returncode == 0
    assert machine.run("tools/setup.sh", "packages", "build").returncode == 0


def test_sudo_is_used_where_it_works_without_a_password(machine):
    machine.debian()
    machine.user(1000)
    machine.fake("sudo", 'if [ "$1" = -n ]; then exit 0; fi; exec "$@"')
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 0, done.stderr
    assert any(call.startswith("sudo sh -c apt-get update") for call in machine.calls("sudo"))
    assert machine.calls("apt-get")[-1] == APT_INSTALL + DEBIAN_BUILD


def test_sudo_that_wants_a_password_without_a_terminal_prints_the_command(machine):
    machine.debian()
    machine.user(1000)
    machine.fake("sudo", "exit 1")
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 1
    assert "fix: as root: apt-get update && " in done.stderr
    assert machine.calls("apt-get") == []


def test_a_package_that_apt_does_not_know_is_named(machine):
    machine.debian()
    machine.put("unknown_packages", "libxxhash-dev\ndoctest-dev\n")
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 1
    assert "not available here: doctest-dev libxxhash-dev" in done.stderr
    assert "fix: enable the repository" in done.stderr


def test_a_failing_update_is_told_and_the_install_decides(machine):
    machine.debian()
    machine.put("update_fails", "")
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 0, done.stderr
    assert "apt-get update failed" in done.stderr


def test_a_package_that_does_not_bring_what_is_needed_is_named(machine):
    machine.debian()
    provides = (machine.folder / "provides").read_text()
    machine.put("provides", provides.replace("libcli11-dev header CLI/CLI.hpp\n", ""))
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 1
    assert "header CLI/CLI.hpp (Debian: libcli11-dev, RHEL: cli11-devel)" in done.stderr


def test_a_compiler_that_stays_too_old_is_named_with_the_version_it_needs(machine):
    machine.debian()
    done = machine.run("tools/setup.sh", "packages", "build", FAKE_GXX_VERSION="10.2.1")
    assert done.returncode == 1
    assert "version g++ at least 11 (Debian: g++, RHEL: gcc-c++)" in done.stderr


def test_centos_enables_crb_and_epel_before_it_installs(machine):
    machine.centos()
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 0, done.stderr
    assert machine.calls("dnf") == [
        "dnf -y install dnf-plugins-core epel-release",
        "dnf config-manager --set-enabled crb",
        "dnf -y install gcc-c++ cmake ninja-build make git doctest-devel json-devel cli11-devel "
        "xxhash-devel openblas-devel python3.11",
    ]


def test_rhel_enables_code_ready_builder_through_its_subscription(machine):
    machine.centos("rhel")
    machine.fake("subscription-manager")
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 0, done.stderr
    calls = machine.calls("subscription-manager", "dnf")
    assert calls[0].startswith("subscription-manager repos --enable codeready-builder-for-rhel-9-")
    assert "epel-release-latest-9" in calls[1]
    assert calls[2].startswith("dnf -y install gcc-c++ ")


def test_a_package_that_dnf_does_not_know_is_named(machine):
    machine.centos()
    machine.put("unknown_packages", "cli11-devel\n")
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 1
    assert "not available here: cli11-devel" in done.stderr


def test_without_root_on_centos_the_whole_dnf_command_is_printed(machine):
    machine.centos()
    machine.user(1000)
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 1
    assert (
        "fix: as root: dnf -y install dnf-plugins-core epel-release && "
        "dnf config-manager --set-enabled crb && dnf -y install gcc-c++ " in done.stderr
    )
    assert machine.calls("dnf") == []


def test_a_machine_without_apt_and_dnf_is_told_what_is_missing(machine):
    machine.stock_shelf()
    done = machine.run("tools/setup.sh", "packages", "build")
    assert done.returncode == 1
    assert "neither apt-get nor dnf" in done.stderr
    assert "libopenblas-openmp-dev" in done.stderr


def test_an_unknown_command_is_refused_with_the_usage(machine):
    done = machine.run("tools/setup.sh", "instal")
    assert done.returncode == 1
    assert "unknown command 'instal'" in done.stderr
    assert "packages build|ci" in done.stderr
