"""Every test program that has CUDA cases, with no case skipped; also from compute_80 PTX alone."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from gpu_check import doctest_output, training
from gpu_check.check import Check
from gpu_check.commands import Done

PROGRAMS = ("tests_core", "tests_kernels", "tests_model", "tests_train")
PTX_LIMITS = (166912, 101376)  # tools/gpu_pack.sh
# Of tests_train, the files with CUDA cases; the others train on the CPU and load no PTX.
CUDA_TRAIN_FILES = ("test_golden.cpp", "test_optimizer.cpp", "test_param_store.cpp",
                    "test_trainer_cuda.cpp", "test_warm_up.cpp")


def environment(check: Check) -> dict[str, str]:
    return {"INGOT_REQUIRE_CUDA": "1", "INGOT_SOURCE_DIR": str(check.root)}


def judge(check: Check, name: str, done: Done, is_filtered: bool = False) -> None:
    """Counts a program's tests into the part's data; what a filter left out is no skip."""
    counts = doctest_output.parse(done.output)
    if counts is None:
        check.problem(f"{name} {done.ended} without a summary: {done.last_lines()}")
        return
    check.data.setdefault("programs", {})[name] = {
        **dataclasses.asdict(counts), "seconds": round(done.seconds, 1)}
    recorded = check.previous.get("data", {}).get("recorded", {}).get(name, 0)
    check.data.setdefault("recorded", {})[name] = max(recorded, counts.cases)
    if done.status != 0 or counts.failed:
        names = "; ".join(counts.failed_names[:5])
        check.problem(f"{name}: {counts.failed} cases failed, it {done.ended}: {names}")
    for line in counts.skip_lines:
        check.problem(f"{name}: a test was skipped: {line}")
    if counts.skipped and not is_filtered:
        check.problem(f"{name}: {counts.skipped} cases were skipped")
    check.at_least(f"{name}: cases that ran", counts.cases, max(recorded, 1), "cases")


def run(check: Check) -> None:
    for name in PROGRAMS:
        judge(check, name, check.commands.run([check.program(name)],
                                              environment=environment(check), log=name))


def with_library(check: Check, limit: int) -> Path:
    """A folder with the programs and the library that holds PTX alone."""
    library = check.root / f"bin-ptx80-{limit}" / "libingot.so"
    if not library.is_file():
        raise FileNotFoundError(f"{library} is missing; this part needs what tools/gpu_pack.sh makes")
    folder = check.work / f"ptx80-{limit}"
    shutil.copytree(check.binaries, folder)
    shutil.copy(library, folder / "libingot.so")
    return folder


def run_ptx80(check: Check) -> None:
    folders = {limit: with_library(check, limit) for limit in PTX_LIMITS}
    # One program alone first: it fills the driver's cache of compiled PTX for the others.
    for limit, folder in folders.items():
        judge(check, f"tests_core, {limit} bytes", check.commands.run(
            [str(folder / "tests_core")], environment=environment(check)))
    filters = {"tests_train": ["--source-file=" + ",".join(f"*{f}" for f in CUDA_TRAIN_FILES)]}
    calls = [(name, limit, [str(folder / name), *filters.get(name, [])])
             for name in PROGRAMS[1:] for limit, folder in folders.items()]
    done = check.commands.at_once(
        [{"command": command, "environment": environment(check), "log": f"{name}, {limit} bytes"}
         for name, limit, command in calls], width=2)
    for (name, limit, _), one in zip(calls, done):
        judge(check, f"{name}, {limit} bytes", one, is_filtered=name in filters)
    for limit, folder in folders.items():
        run = training.train(
            check, f"ptx80-{limit}", training.demo_arguments(check.root) + [
                "--train.epochs=0", "--train.steps=60", "--train.micro_batch=8",
                "--train.global_batch=8", "--schedule.warmup_steps=10", "--eval.every=0",
                "--sample.every=0", "--sample.tokens=0", "--data.val=", "--data.test="],
            program=str(folder / "train_gpt"))
        losses = run.series("loss")
        check.data.setdefault("training", {})[str(limit)] = {"loss": losses}
        check.at_most(f"training at {limit} bytes: last loss / first loss", losses[-1] / losses[0],
                      0.8, "of it")
