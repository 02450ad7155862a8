"""What a run shows and records. Method: TensorBoard's own reader against metrics.jsonl, also after
kill -9; the lines of the console; and runs that must agree with one another."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from programs import Workplace
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# Tag of the curve -> key of the record.
CURVES = {"loss": "loss", "learning_rate": "lr", "step": "step", "epoch": "epoch",
          "tokens_per_s": "tokens_per_s", "grad_norm": "grad_norm", "step_ms": "step_ms",
          "data_wait_ms": "data_wait_ms"}


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: [(event.step, event.value) for event in reader.Scalars(tag)]
            for tag in reader.Tags()["scalars"]}


def as_float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def points(records: list[dict], key: str) -> list[tuple[int, float]]:
    return [(record["step"], as_float32(record[key])) for record in records if key in record]


def test_tensorboard_shows_the_records(finished: Workplace) -> None:
    read = curves(finished.folder / "run")
    assert set(read) == {*CURVES, "val_loss", "test_loss"}
    for tag, key in CURVES.items():
        assert read[tag] == points(finished.steps(), key), tag
    assert [step for step, _ in read["loss"]] == list(range(1, 9))
    for tag in ("val_loss", "test_loss"):
        assert read[tag] == points(finished.records(), tag), tag
    assert [step for step, _ in read["val_loss"]] == [4, 8]


def test_tensorboard_shows_a_killed_run_up_to_its_last_step(workplace: Workplace) -> None:
    process = workplace.start("--train.steps=100000")
    workplace.wait_for_steps(20, process)
    process.kill()
    process.communicate()
    read = curves(workplace.folder / "run")
    recorded = points(workplace.steps(), "loss")
    # A step is written to both files, one after the other.
    assert abs(len(read["loss"]) - len(recorded)) <= 1
    both = min(len(read["loss"]), len(recorded))
    assert both >= 20 and read["loss"][:both] == recorded[:both]


def test_the_console_shows_configuration_plan_steps_and_summary(finished: Workplace) -> None:
    lines = finished.output.splitlines()
    assert "  * optimizer.lr             0.003" in lines
    assert any(line.startswith("memory plan for cpu, 4 x 32 tokens") for line in lines)
    assert "global batch = 4 x 2 x 1 = 8 sequences" in lines
    steps = [line for line in lines if line.startswith("step ") and " norm " in line]
    assert len(steps) == 8
    for number, (line, record) in enumerate(zip(steps, finished.steps(), strict=True), 1):
        shown = re.fullmatch(
            r"step (\d)/8  loss (\S+)  norm +(\S+)  lr (\S+) +(\S+) ms +(\S+) tok/s"
            r"  mfu +\S+%  wait +\S+%  eta +(-|\S+ \S+)", line)
        assert shown, line
        assert int(shown[1]) == number == record["step"]
        assert float(shown[2]) == pytest.approx(record["loss"], abs=6e-5)
        assert float(shown[3]) == pytest.approx(record["grad_norm"], rel=2e-3)
        assert float(shown[4]) == pytest.approx(record["lr"], rel=6e-3)
        assert float(shown[5]) == pytest.approx(record["step_ms"], abs=0.06)
        assert float(shown[6].replace(",", "")) == pytest.approx(record["tokens_per_s"], abs=0.6)
    rest = finished.output[finished.output.index("time per phase"):]
    for phase in ("forward", "backward", "optimizer", "waiting for data", "evaluation",
                  "sampling", "total"):
        assert re.search(rf"^  {phase}.* s +\d+\.\d%$", rest, re.MULTILINE), phase
    assert "trained 8 steps, 2,048 tokens" in rest
    assert "weights: run/checkpoints/checkpoint-8" in rest
    assert "records: run/metrics.jsonl" in rest


def test_the_log_file_has_what_the_console_had(finished: Workplace) -> None:
    log = (finished.folder / "run" / "rank_0000.log").read_text()
    for line in finished.output.splitlines():
        assert line in log, line


def samples(output: str) -> list[str]:
    return re.findall(r"^--- sample after step \d+ .*\n([\s\S]*?)\n---$", output, re.MULTILINE)


def trained(place: Workplace, log_dir: str, *arguments: str) -> tuple[bytes, list[dict], str]:
    """Weights, steps and output of a run in a folder of its own."""
    result = place.train(*arguments, f"--log.dir={log_dir}")
    assert result.returncode == 0, result.stderr
    checkpoint = place.folder / log_dir / "checkpoints" / "checkpoint-4" / "model.safetensors"
    return checkpoint.read_bytes(), place.steps(log_dir), result.stdout


def hashes(steps: list[dict]) -> list[str]:
    return [step["token_hash"] for step in steps]


def test_the_same_configuration_gives_the_same_bytes_and_text(workplace: Workplace) -> None:
    first = trained(workplace, "first")
    second = trained(workplace, "second")
    assert first[0] == second[0]
    for key in ("loss", "grad_norm", "lr", "token_hash", "epoch"):
        assert [step[key] for step in first[1]] == [step[key] for step in second[1]], key
    assert len(samples(first[2])) == 1 and samples(first[2]) == samples(second[2])
    other = trained(workplace, "other", "--train.seed=1")
    assert other[0] != first[0] and hashes(other[1])[0] != hashes(first[1])[0]


def test_a_run_is_repeated_by_the_configuration_it_saved(workplace: Workplace) -> None:
    first = trained(workplace, "first", "--optimizer.lr=0.002")
    again = trained(workplace, "again", "first/config.json", "--checkpoint.dir=again/checkpoints")
    assert first[0] == again[0] and hashes(first[1]) == hashes(again[1])


def test_workers_and_micro_batches_do_not_change_the_data(workplace: Workplace) -> None:
    _, expected, _ = trained(workplace, "expected")
    assert len(set(hashes(expected))) == 4
    for number, arguments in enumerate([
        ["--data.workers=4"], ["--train.micro_batch=1"], ["--train.micro_batch=8"],
        ["--train.micro_batch=2", "--data.workers=3"],
    ]):
        _, steps, _ = trained(workplace, f"run-{number}", *arguments)
        assert hashes(steps) == hashes(expected), arguments
        for step, other in zip(expected, steps, strict=True):
            assert step["loss"] == pytest.approx(other["loss"], rel=1e-5), arguments


def test_help_names_every_key_and_the_exit_status(workplace: Workplace) -> None:
    help_text = workplace.train("--help").stdout
    markdown = workplace.train("--help-markdown").stdout
    keys = re.findall(r"^\| `([a-z]+\.[a-z0-9_]+)` \|", markdown.split("## Not in")[0],
                      re.MULTILINE)
    assert len(keys) > 40
    for key in keys:
        assert f"  --{key}=" in help_text, key
    assert "Exit status" in help_text
