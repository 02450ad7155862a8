"""The CUDA tests and a training run from compute_80 PTX alone, at the shared memory of older cards.

The driver compiles the PTX when a program first uses a file's kernels, on one thread, and that takes
longer than the tests. So the programs run beside each other; each chain below has a cache of compiled
code for itself: two programs that filled one at once seemed to lose part of it. What measures the
memory of the whole card runs alone, afterwards.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from gpu_check import part_tests, training
from gpu_check.check import Check
from gpu_check.commands import Done

LIMITS = (166912, 101376)  # tools/gpu_pack.sh
# Of tests_train, the files with CUDA cases; the others train on the CPU and load no PTX.
CUDA_TRAIN_FILES = ("test_batch_feeder.cpp", "test_golden.cpp", "test_optimizer.cpp", "test_param_store.cpp",
                    "test_trainer_cuda.cpp", "test_warm_up.cpp")
FLASH, LARGE = "*test_attention_flash*.cpp", "*test_large_*.cpp"
MEMORY = "*measured memory is the planned*"
# What runs, by name: program and filters. The kernels' tests in three parts.
KERNELS = {
    "tests_kernels (flash)": ["tests_kernels", f"--source-file={FLASH}"],
    "tests_kernels (large)": ["tests_kernels", f"--source-file={LARGE}"],
    "tests_kernels (others)": ["tests_kernels", f"--source-file-exclude={FLASH},{LARGE}"],
}
OTHERS = {
    "tests_core": ["tests_core"],
    "tests_model": ["tests_model"],
    "tests_train": ["tests_train",
                    "--source-file=" + ",".join(f"*{file}" for file in CUDA_TRAIN_FILES),
                    f"--test-case-exclude={MEMORY}"],
}
ALONE = {"tests_train (memory)": ["tests_train", f"--test-case={MEMORY}"]}
PROGRAMS = KERNELS | OTHERS | ALONE
CHAINS = (*([name] for name in KERNELS), list(OTHERS))  # programs that run one after the other


def with_library(check: Check, limit: int) -> Path:
    """A folder with the programs and the library that holds PTX alone."""
    library = check.root / f"bin-ptx80-{limit}" / "libingot.so"
    if not library.is_file():
        raise FileNotFoundError(f"{library} is missing; this part needs what tools/gpu_pack.sh makes")
    folder = check.work / f"ptx80-{limit}"
    shutil.copytree(check.binaries, folder)
    shutil.copy(library, folder / "libingot.so")
    return folder


def cache(check: Check, limit: int, chain: list[str]) -> dict[str, str]:
    """Where the driver keeps what it compiles for a chain."""
    return {"CUDA_CACHE_PATH": str(check.work / f"cache-{limit}-{CHAINS.index(chain)}"),
            "CUDA_CACHE_MAXSIZE": str(1 << 30)}


def call(check: Check, folder: Path, limit: int, chain: list[str], name: str) -> dict[str, Any]:
    """What to run for a name of the tables above, with a chain's cache."""
    program, *filters = PROGRAMS[name]
    return {"command": [str(folder / program), *filters],
            "environment": part_tests.environment(check) | cache(check, limit, chain) |
                           {"OMP_NUM_THREADS": "2"},
            "log": f"{name}, {limit} bytes"}


def judge(check: Check, limit: int, name: str, done: Done) -> None:
    # Without a filter, as many as in the part `tests`.
    is_filtered = len(PROGRAMS[name]) > 1
    floor = 0 if is_filtered else check.recorded(name, part="tests")
    part_tests.judge(check, f"{name}, {limit} bytes", done, is_filtered, floor)


def run(check: Check) -> None:
    folders = {limit: with_library(check, limit) for limit in LIMITS}
    # The longest first.
    work = [(limit, chain) for chain in reversed(CHAINS) for limit in LIMITS]
    done = check.commands.chains_at_once(
        [[call(check, folders[limit], limit, chain, name) for name in chain]
         for limit, chain in work], width=len(work))
    for (limit, chain), finished in zip(work, done):
        for name, one in zip(chain, finished):
            judge(check, limit, name, one)
    for limit, folder in folders.items():
        hold_kernel_tests(check, limit)
        for name in ALONE:
            judge(check, limit, name,
                  check.commands.run(**call(check, folder, limit, list(OTHERS), name)))
        run_training(check, limit, str(folder / "train_gpt"))


def hold_kernel_tests(check: Check, limit: int) -> None:
    """Together, the filters of KERNELS run every case once, and as many as the part `tests`."""
    counts = [check.data.get("programs", {}).get(f"{name}, {limit} bytes") for name in KERNELS]
    if None not in counts:
        ran = sum(count["cases"] for count in counts)
        every = counts[0]["cases"] + counts[0]["skipped"]
        check.at_least(f"tests_kernels, {limit} bytes: cases that ran", ran,
                       max(every, check.recorded("tests_kernels", part="tests")), "cases")
        if ran > every:  # would hide one that did not
            check.problem(f"tests_kernels, {limit} bytes: {ran - every} cases ran twice")


def run_training(check: Check, limit: int, program: str) -> None:
    run = training.train(
        check, f"training-{limit}", training.demo_arguments(check.root) + [
            "--train.epochs=0", "--train.steps=60", "--train.micro_batch=8",
            "--train.global_batch=8", "--schedule.warmup_steps=10", "--eval.every=0",
            "--sample.every=0", "--sample.tokens=0", "--data.val=", "--data.test="],
        program=program, environment=cache(check, limit, list(OTHERS)))
    losses = run.series("loss")
    check.data.setdefault("training", {})[str(limit)] = {"loss": losses}
    check.at_most(f"training at {limit} bytes: last loss / first loss", losses[-1] / losses[0],
                  0.8, "of it")
