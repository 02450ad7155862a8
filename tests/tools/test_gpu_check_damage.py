"""tools/gpu_check.sh with damaged results, programs that print nothing, signals, and a full disk."""

from __future__ import annotations

import errno
import json
import math
import signal
import time
from pathlib import Path

import pytest
from gpu_check import part_export, results, sources, stale
from gpu_check.check import Bar
from gpu_check.commands import CommandError, Commands, Done
from gpu_check_fixture import TORCH, Pack


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    return Pack(tmp_path)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def ends(pid: int) -> bool:
    """Whether a process that was killed ends: a signal takes its time on a busy machine."""
    end = time.monotonic() + 20
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_running(pid)


def wait_for(path: Path) -> str:
    """The text of a file that another process writes."""
    end = time.monotonic() + 30
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)
    return path.read_text()


@pytest.mark.parametrize(("text", "words"), [
    ('{"schema": 1, "parts": {"tes', "h200.json is no JSON (Unterminated string"),
    ("[1]", "h200.json holds no results"),
    ('{"schema": 1, "parts": 3}', "h200.json holds no results")])
def test_damaged_results_are_named_and_left_alone(pack: Pack, text: str, words: str) -> None:
    path = pack.put("bench/results/h200.json", text)
    done = pack.run("kernels")
    assert done.returncode == 1 and words in done.stderr
    assert "restore it from git, or remove it" in done.stderr
    assert "Traceback" not in done.stderr and path.read_text() == text


def test_damaged_results_are_a_line_of_the_list_of_old_ones(tmp_path: Path) -> None:
    folder = tmp_path / "bench/results"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("{")
    (folder / "b.json").write_text('{"schema": 1, "parts": {"x": {"passed": true}}}')
    (folder / "c.json").write_text('{"schema": 1}')
    (tmp_path / "tools/gpu_check").mkdir(parents=True)
    (tmp_path / "tools/gpu_check/parts.json").write_text('{"x": {"files": ["tools/**/*.json"]}}')
    first, second, third = stale.lines(tmp_path)
    assert first.startswith("a.json: CANNOT BE READ: ValueError: ") and "is no JSON" in first
    assert second == "b.json: CANNOT BE READ: KeyError: 'changed_files'"
    assert third == "c.json x: never run"


def test_every_part_depends_on_the_flags_it_is_compiled_with() -> None:
    for name, part in sources.read_parts().items():
        names = {path.relative_to(sources.ROOT).as_posix()
                 for path in sources.files_of(part, sources.ROOT)}
        assert "CMakeLists.txt" in names and any(n.startswith("cmake/") for n in names), name


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_figure_that_is_no_number_meets_no_bar(value: float) -> None:
    for is_at_most in (False, True):
        for bar in (Bar("x", value, 1.0, "s", is_at_most), Bar("x", 1.0, value, "s", is_at_most)):
            assert not bar.passed and bar.text().endswith("(missed)")


def test_an_error_of_nan_is_the_worst_of_its_series() -> None:
    assert part_export.worst_of({"loss after step 1": 0.5, "loss after step 2": math.nan,
                                 "loss after step 3": 0.25}) == {"loss, worst step": math.inf}
    assert part_export.ratio_of(math.inf, 1.0) == math.inf
    assert math.isnan(part_export.ratio_of(1.0, math.inf))
    assert (part_export.ratio_of(1.0, 0.0), part_export.ratio_of(0.0, 0.0)) == (math.inf, 0.0)
    assert part_export.ratio_of(1.0, 4.0) == 0.25


def test_pytorch_that_gave_no_number_is_no_yardstick(pack: Pack) -> None:
    lines = TORCH["bench/torch_golden.py"]
    pack.print_from("bench/torch_golden.py", lines.replace("0.008", "null", 1))
    done = pack.run("export")
    assert "MISS bf16 error of PyTorch's (pure bf16): logits: nan times" in done.stdout
    assert "demo: epochs" in done.stdout  # the part went on


def test_nan_from_golden_check_fails_its_bars(pack: Pack) -> None:
    done = pack.run("export", golden_check={"fp32": math.nan, "bf16": math.nan})
    assert done.returncode == 1
    assert "MISS golden fp32 logits: nan absolute" in done.stdout
    assert "MISS bf16 error of PyTorch's (pure bf16): " in done.stdout


def test_time_counted_twice_is_not_an_explanation(pack: Pack) -> None:
    done = pack.run("e2e", train_gpt={"matmul_ms": 900.0})
    assert "MISS part of a step that is not explained: 8.22999 %" in done.stdout


def test_a_program_that_prints_nothing_or_half_a_line_is_named(pack: Pack) -> None:
    pack.print_from("bench/torch_gpt2.py", "")
    done = pack.run("e2e_1558m")
    assert "torch_gpt2.py --size=1558m" in done.stdout
    assert "ended with status 0 without a line of JSON: (it printed nothing)" in done.stdout
    pack.print_from("bench/torch_gpt2.py", '{"tokens_per_s": 5')
    assert 'printed a line that is no JSON' in pack.run("e2e_1558m").stdout
    with pytest.raises(CommandError, match="x printed a line that is no JSON"):
        Done("x", 0, "{oops", 0.0).json_lines()


def test_a_program_that_is_missing_is_named(pack: Pack) -> None:
    (pack.root / "bin/tests_core").unlink()
    done = pack.run("tests")
    assert done.returncode == 1 and not pack.entry("tests")["passed"]
    assert "bin/tests_core cannot be started: [Errno 2] No such file" in done.stdout


@pytest.mark.parametrize(("gpu", "file"), [
    ("Tesla, V100/16 (\u00fc)\u2122", "tesla-v100-16.json"), ("../../x", "x.json")])
def test_the_name_of_a_card_may_hold_anything(pack: Pack, gpu: str, file: str) -> None:
    assert pack.run("faults", nvidia__smi={"gpu": gpu}).returncode == 0
    found = json.loads((pack.root / "bench/results" / file).read_text())
    assert found["gpu"] == gpu and found["parts"]["faults"]["gpu"]["uuid"] == "GPU-0123"


def test_a_machine_without_a_gpu_is_refused_without_results(pack: Pack) -> None:
    (pack.path / "nvidia-smi").write_text("#!/bin/sh\necho No devices were found\nexit 6\n")
    done = pack.run("faults")
    assert done.returncode == 1
    assert "status 6 and named no GPU in slot 0000:af:00.0, which our programs use: No devices" in done.stderr
    (pack.path / "nvidia-smi").write_text("#!/bin/sh\n")
    assert "which our programs use: (it printed nothing)" in pack.run("faults").stderr
    assert not (pack.root / "bench/results").exists() or not list(
        (pack.root / "bench/results").iterdir())
    with pytest.raises(ValueError, match="named '\u7532', of which no file name can be made"):
        results.file_name("\u7532")


def test_results_that_are_not_there_cannot_be_merged(pack: Pack, tmp_path: Path) -> None:
    done = pack.run("--merge", str(tmp_path / "h100.json"))
    assert done.returncode == 1 and "h100.json is no file; name a <gpu>.json" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_signal_ends_the_programs_too_and_leaves_no_stale_pass(
        pack: Pack, number: signal.Signals, at_once: bool) -> None:
    assert pack.run("tests").returncode == 0
    call = ("list(check.commands.at_once([{'command': c, 'log': str(i)} for i in range(4)], 2))"
            if at_once else "check.commands.run(c)")
    pack.put("tools/gpu_check/part_tests.py", "def run(check):\n"
             "    c = ['/bin/sh', '-c', 'echo $$ > pid; exec sleep 60']\n"
             f"    {call}\n")
    process = pack.start("tests")
    pid = int(wait_for(pack.root / "build/gpu_check/tests/pid"))
    # A second run would share the GPU, the work folder and the results.
    second = pack.run("kernels")
    assert second.returncode == 1 and "another gpu_check.sh is at work in" in second.stderr
    process.send_signal(number)
    assert process.wait(timeout=30) == 128 + number
    assert ends(pid)
    assert pack.entry("tests")["problems"] == ["the part did not come to its end"]
    assert pack.run("kernels").returncode == 0


def test_an_outcome_that_cannot_be_written_is_printed_and_is_no_pass(pack: Pack) -> None:
    assert pack.run("faults").returncode == 0
    # The disk is full when the part ends.
    pack.put("tools/gpu_check/part_faults.py", "import errno, os\nfrom gpu_check import results\n"
             "def full(*_):\n    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
             "def run(check):\n    check.at_least('x', 2, 1, 's')\n    results.os.replace = full\n")
    done = pack.run("faults")
    assert done.returncode == 1 and "ok   x: 2 s" in done.stdout
    assert "PROBLEM the outcome cannot be written to " in done.stdout
    assert "No space left on device" in done.stdout
    assert pack.entry("faults")["problems"] == ["the part did not come to its end"]
    assert not list((pack.root / "bench/results").glob("*.partial"))


def test_a_folder_is_held_by_one_and_free_afterwards(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with results.locked(tmp_path / "new"):
        with pytest.raises(BlockingIOError), results.locked(tmp_path / "new"):
            pass
    with results.locked(tmp_path / "new"):
        pass

    def refuse(*_: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(results.fcntl, "flock", refuse)
    with pytest.raises(ValueError, match="new cannot be locked .*; name --work and --results on"):
        with results.locked(tmp_path / "new"):
            pass


def test_a_program_that_outlives_its_time_is_killed_with_its_children(tmp_path: Path) -> None:
    commands = Commands(tmp_path, 60)
    done = commands.run(["/bin/sh", "-c", "sleep 60 & echo $! > pid; wait"], seconds=0.5)
    assert done.status == -1 and done.seconds < 10
    assert ends(int((tmp_path / "pid").read_text()))
