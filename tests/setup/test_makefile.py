"""The Makefile and .ci/run: what each target calls, and that a failure is one."""

import pytest

CTEST_PASSES = 'echo "100% tests passed, 0 tests failed out of 12"'
CTEST_FAILS = 'echo "83% tests passed, 2 tests failed out of 12"; exit 8'
FAKE_CMAKE = """
case "$1" in
    --version) echo "cmake version 3.25.1" ;;
    --preset) mkdir -p "build/$2" && touch "build/$2/build.ninja" ;;
    --build)
        case "$2" in */cpu-gcc11) [ ! -e "$MACHINE/gcc11_fails" ] || exit 1 ;; esac
        for name in train_gpt bench_kernels; do cp "$MACHINE/shelf/$name" "$2/"; done ;;
esac
"""


@pytest.fixture
def clone(machine):
    machine.debian().complete()
    machine.fake("cmake", FAKE_CMAKE)
    machine.fake("ctest", CTEST_PASSES)
    machine.fake("git", 'if [ "$2" = "*.h" ]; then echo a.h; else echo tools/setup.sh; fi')
    for name in ("clang-format-14", "shellcheck", "g++-11"):
        machine.fake(name)
    for name in ("train_gpt", "bench_kernels"):
        machine.fake(name, "", machine.shelf)
    for name in ("requirements.txt", "requirements-test.txt"):
        machine.put(f"repo/tools/{name}", "# of the test\n")
    # This clone has no sources whose age could be told.
    machine.fake("gpu_check.sh", 'echo "h200.json: tests: older"', machine.repo / "tools")
    (machine.bin / "make").unlink()
    (machine.bin / "make").symlink_to("/usr/bin/make")
    return machine


def test_help_lists_every_target(clone):
    said = clone.make("help").stdout
    for target in ("run", "test", "build", "bench", "faults", "format", "format-check", "clean"):
        assert f"make {target} " in said


def test_make_test_prepares_builds_and_runs_all_tests(clone):
    done = clone.make("test")
    assert done.returncode == 0, done.stderr
    assert clone.calls("ctest") == [
        "ctest --test-dir build/cpu --output-on-failure --no-tests=error"
    ]
    assert "--target" not in clone.calls("cmake")[-1]
    assert len([c for c in clone.calls("python") if "pip install" in c]) == 2


def test_make_test_fails_when_a_test_fails(clone):
    clone.fake("ctest", CTEST_FAILS)
    assert clone.make("test").returncode != 0


def test_make_test_on_a_machine_with_a_broken_gpu_stops_and_the_cpu_can_be_chosen(clone):
    clone.pci_device()
    done = clone.make("test")
    assert done.returncode != 0
    assert "nvcc is not in PATH" in done.stderr
    assert clone.make("test", DEVICE="cpu").returncode == 0


def test_make_build_makes_the_programs_callable_from_the_root(clone):
    assert clone.make("build").returncode == 0
    assert (clone.repo / "train_gpt").resolve() == clone.repo / "build/cpu/train_gpt"


def test_an_openblas_that_is_installed_later_makes_the_build_configure_again(clone):
    def configured():
        clone.forget()
        assert clone.make("build").returncode == 0
        return len([call for call in clone.calls("cmake") if "--preset" in call])

    assert configured() == 1
    assert configured() == 0
    libraries = "libc.so.6 (libc6) => /lib/libc.so.6\nlibopenblas.so.0 (libc6) => /lib/libopenblas.so.0"
    clone.fake("ldconfig", f"echo '{libraries}'", clone.root / "sbin")
    assert configured() == 1
    assert configured() == 0


def test_make_bench_passes_its_arguments_on(clone):
    assert clone.make("bench", ARGS="--filter layernorm").returncode == 0
    assert clone.calls("bench_kernels") == ["bench_kernels --filter layernorm"]


def test_make_clean_removes_builds_and_links_and_nothing_of_the_user(clone):
    assert clone.make("build").returncode == 0
    kept = ["datasets/a", "runs/b", ".venv/c", "run.json", "hosts", "export_hf"]
    for name in kept:
        clone.put(f"repo/{name}", "mine")
    assert clone.make("clean").returncode == 0
    assert not (clone.repo / "build").exists()
    assert not (clone.repo / "train_gpt").is_symlink()
    for name in kept:
        assert (clone.repo / name).read_text() == "mine"


@pytest.mark.parametrize("tool", ["clang-format-14", "shellcheck", "git"])
def test_format_check_fails_when_one_of_its_tools_does(clone, tool):
    assert clone.make("format-check").returncode == 0
    clone.fake(tool, "exit 1")
    assert clone.make("format-check").returncode != 0


def test_ci_runs_every_stage_and_counts_the_tests(clone):
    done = clone.run(".ci/run", CI="true")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "24 passed, 0 failed"
    presets = [call.split()[2] for call in clone.calls("cmake") if "--preset" in call]
    assert presets == ["cpu", "cpu-asan", "cpu-gcc11"]
    assert clone.calls("gpu_check.sh") == ["gpu_check.sh --stale"]
    assert "h200.json: tests: older" in done.stdout
    assert "a.h" in clone.calls("clang-format-14")[-1]


def test_ci_with_a_failing_test_fails_after_the_other_stages_ran(clone):
    clone.fake("ctest", CTEST_FAILS)
    done = clone.run(".ci/run", CI="true")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "20 passed, 4 failed"
    assert len(clone.calls("clang-format-14")) == 1


def test_ci_fails_when_only_the_old_compiler_does(clone):
    clone.put("gcc11_fails", "")
    done = clone.run(".ci/run", CI="true")
    assert done.returncode == 1
    assert "g++ 11: compile" in done.stdout
    assert done.stdout.splitlines()[-1] == "24 passed, 0 failed"


def test_ci_that_ran_no_test_fails(clone):
    clone.fake("ctest")
    done = clone.run(".ci/run", CI="true")
    assert done.returncode == 1
    assert "no test passed or none ran" in done.stdout


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_make_run_has_a_configuration_for_every_device(clone, device):
    assert (clone.repo / f"configs/python_stdlib_{device}.json").is_file()
