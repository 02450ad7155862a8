"""Runs that are ended from outside, and what they leave. Method: signals to a running training."""

from __future__ import annotations

import os
import signal
import time

import pytest
from numpy_gpt2 import NumpyGpt2
from programs import Workplace, wait_until

FOREVER = "--train.steps=100000"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_after_the_step_with_its_weights(
    workplace: Workplace, number: signal.Signals
) -> None:
    process = workplace.start(FOREVER)
    workplace.wait_for_steps(2, process)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, (process.returncode, errors)
    last = workplace.steps()[-1]["step"]
    assert f"signal {int(number)}: stopping after step {last} of 100000" in output
    assert f"trained {last} steps" in output
    NumpyGpt2(workplace.folder / "run" / "checkpoints" / f"checkpoint-{last}")
    # Evaluation may take long, and is not what somebody waits for who stops a run.
    assert not [record for record in workplace.records() if "val_loss" in record]
    assert "--- sample" not in output
    # A clean end frees the folders.
    assert (workplace.folder / "run" / "run.lock").read_bytes() == b""


def test_threads_of_libraries_leave_the_signal_to_the_run(workplace: Workplace) -> None:
    """A thread that does not block it would end the process without its weights."""
    process = workplace.start(FOREVER, "--train.threads=2", env={
        **{name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"},
        "OMP_WAIT_POLICY": "passive"})
    workplace.wait_for_steps(2, process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    last = workplace.steps()[-1]["step"]
    assert (workplace.folder / f"run/checkpoints/checkpoint-{last}/model.safetensors").exists()


def test_a_signal_before_the_first_step_leaves_no_weights(workplace: Workplace) -> None:
    """The signal waits while it is blocked in the parent, and arrives before anything else."""
    process = workplace.start(
        FOREVER, preexec_fn=lambda: (signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),
                                     os.kill(os.getpid(), signal.SIGTERM)))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "stopping after step 0 of 100000" in output and workplace.steps() == []
    assert not list((workplace.folder / "run").glob("checkpoints/checkpoint-*"))


def test_a_second_signal_ends_the_process_at_once(workplace: Workplace) -> None:
    """Named pipes without a reader hold the run back when it writes its weights."""
    for step in range(1, 2001):
        folder = workplace.folder / "run" / "checkpoints" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        os.mkfifo(folder / "model.safetensors.partial")
    # Large steps, so that a slow machine does not run past the last of the pipes.
    process = workplace.start(FOREVER, "--train.micro_batch=32", "--train.global_batch=64")
    workplace.wait_for_steps(1, process)
    process.send_signal(signal.SIGTERM)
    log = workplace.folder / "run" / "rank_0000.log"
    wait_until(lambda: "signal 15: stopping" in log.read_text())
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == -signal.SIGTERM


def test_a_second_signal_within_one_step_ends_the_process_at_once(workplace: Workplace) -> None:
    """A step of many micro-batches takes longer than anybody's patience."""
    process = workplace.start(FOREVER, "--train.micro_batch=1", "--train.global_batch=180",
                              "--train.seq_len=32", "--model.hf=", "--model.init=scratch",
                              "--model.preset=gpt2-124m", "--sample.tokens=0")
    log = workplace.folder / "run" / "rank_0000.log"
    wait_until(lambda: log.exists() and "weights: random" in log.read_text())
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)  # as one with the first
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == -signal.SIGTERM
    assert workplace.steps() == []


def test_a_killed_run_is_taken_over_with_a_word(workplace: Workplace) -> None:
    """The folder is free again, though its lock file still names the killed process."""
    process = workplace.start(FOREVER)
    workplace.wait_for_steps(2, process)
    process.kill()
    process.communicate()
    # Every line but the last, which may be torn, is a record.
    assert [step["step"] for step in workplace.steps()] == list(
        range(1, len(workplace.steps()) + 1))
    result = workplace.train(
        "--train.steps=1", "--log.dir=other", "--checkpoint.dir=run/checkpoints")
    assert result.returncode == 0, result.stderr
    assert f"took over the lock of process {process.pid} " in result.stdout + result.stderr


def test_output_that_nobody_reads_does_not_end_the_run(workplace: Workplace) -> None:
    """./train_gpt | head -1"""
    process = workplace.start("--train.steps=20")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert len(workplace.steps()) == 20
    log = (workplace.folder / "run" / "rank_0000.log").read_text()
    assert "step 20/20" in log and "trained 20 steps" in log


def test_a_shard_that_shrinks_under_a_run_is_named(workplace: Workplace) -> None:
    """B28: an error within a few steps, no signal and no batch of zeros."""
    process = workplace.start(FOREVER)
    workplace.wait_for_steps(3, process)
    os.truncate(workplace.shard("train"), 5000)
    began = len(workplace.steps())
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1, process.returncode
    assert errors.count("\n") == 1 and "train_000.bin" in errors, errors
    assert "5000 bytes" in errors
    # What was prepared before may still be trained on.
    assert len(workplace.steps()) <= began + 20
    assert all(step["loss"] > 0.1 for step in workplace.steps())
