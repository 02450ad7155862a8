"""Goal: TensorBoard itself shows what the engine wrote. Method: its own reader on files of a process
that trains nothing but writes like a run (write_events), also after the process was killed."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

WRITER = os.environ["INGOT_WRITE_EVENTS"]


def write(folder, first, last):
    subprocess.run([WRITER, str(folder), str(first), str(last)], check=True)


def curves(folder):
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {
        tag: [(event.step, event.value) for event in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


def test_every_curve_is_there_with_its_values(tmp_path):
    write(tmp_path, 1, 8)
    read = curves(tmp_path)
    assert set(read) == {
        "loss", "val_loss", "learning_rate", "step", "epoch", "tokens_per_s", "grad_norm",
        "step_ms", "data_wait_ms",
    }
    assert read["loss"] == [(step, pytest.approx(4 / step)) for step in range(1, 9)]
    assert read["val_loss"] == [(4, 2.0), (8, 1.0)]
    assert read["learning_rate"] == [(step, pytest.approx(1e-3)) for step in range(1, 9)]
    assert read["step"] == [(step, float(step)) for step in range(1, 9)]
    assert read["epoch"] == [(step, step / 4) for step in range(1, 9)]
    assert {value for _, value in read["tokens_per_s"]} == {2500.0}
    assert {value for _, value in read["grad_norm"]} == {0.5}


def test_a_resumed_run_replaces_the_points_it_does_again(tmp_path):
    write(tmp_path, 1, 8)
    time.sleep(1.1)  # TensorBoard reads files in the order of the second in their names
    write(tmp_path, 6, 9)
    assert [step for step, _ in curves(tmp_path)["loss"]] == list(range(1, 10))


def test_a_killed_run_is_readable_and_so_is_the_next(tmp_path):
    process = subprocess.Popen([WRITER, str(tmp_path), "1", "0"])
    metrics = Path(tmp_path) / "metrics.jsonl"
    deadline = time.monotonic() + 30
    while not (metrics.exists() and metrics.stat().st_size > 20000):
        assert time.monotonic() < deadline, "the writer wrote nothing"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    steps = [step for step, _ in curves(tmp_path)["loss"]]
    assert len(steps) > 20
    assert steps == list(range(1, len(steps) + 1))

    time.sleep(1.1)
    write(tmp_path, 11, 20)
    assert [step for step, _ in curves(tmp_path)["loss"]] == list(range(1, 21))
