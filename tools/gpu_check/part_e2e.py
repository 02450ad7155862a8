"""Training beside PyTorch: rate, memory, and where the time of a step goes.

Memory is compared as one number of both: what the driver counts as used. Ours is the whole card
after the last step, context and libraries included. PyTorch's is the most its tensors held at once
(max_memory_allocated) and its context (what the driver counts beyond the allocator's reserve);
the allocator's own reserve, which is larger, is left out in PyTorch's favour.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

from gpu_check import step_floor, training
from gpu_check.check import Check

SEQUENCE = 1024
WARM_UP = 10  # steps that are not counted
PROFILED_STEP = 6
# What the engine says of the library that it has loaded.
CUDNN = re.compile(r"\battention: (cuDNN \d+\.\d+\.\d+)")


def arguments_of(preset: str, shard: str, batch: int, micro_steps: int, steps: int) -> list[str]:
    return [f"--model.preset={preset}", f"--data.train={shard}", "--train.device=cuda",
            f"--train.seq_len={SEQUENCE}", f"--train.micro_batch={batch}",
            f"--train.global_batch={batch * micro_steps}", f"--train.steps={steps}",
            f"--schedule.warmup_steps={WARM_UP}"]


def make_shard(check: Check, sequences: int) -> str:
    path = check.work / "train_000.bin"
    check.commands.must(
        [*check.script("bench/random_shard.py"), str(path), str(sequences * SEQUENCE + 1)])
    return str(path)


def train(check: Check, name: str, arguments: list[str]) -> training.Training:
    """A run whose weights are of no use to anybody. Its file of settings is empty."""
    (check.work / "run.json").write_text("{}")
    run = training.train(check, name, ["run.json", *arguments, f"--checkpoint.dir={name}-weights"])
    shutil.rmtree(check.work / f"{name}-weights", ignore_errors=True)
    return run


def run_torch(check: Check, size: str, batch: int, micro_steps: int, steps: int) -> dict[str, Any]:
    done = check.commands.must([
        *check.script("bench/torch_gpt2.py"), f"--size={size}", f"--batch={batch}",
        f"--seq-len={SEQUENCE}", f"--micro-steps={micro_steps}", f"--warm-up={WARM_UP}",
        f"--steps={steps}"], log="torch_gpt2")
    return done.last_json()


def torch_memory(torch: dict[str, Any]) -> float:
    memory = torch["memory"]
    return memory["max_allocated_bytes"] + memory["used_bytes"] - memory["reserved_bytes"]


def hold_against_torch(check: Check, ours: training.Training, torch: dict[str, Any]) -> float:
    """The bars that both sizes share; our median rate."""
    rate = ours.measured(WARM_UP)["tokens_per_s"]["median"]
    memory = training.hold_memory(check, ours)
    check.data["ours"] = {**ours.measured(WARM_UP), "memory": vars(memory)}
    check.data["torch"] = torch
    check.at_least("tokens/s against PyTorch in the same run", rate, torch["tokens_per_s"],
                   "tokens/s")
    check.at_most("peak memory against PyTorch's tensors and context",
                  memory.measured_bytes / 1e9, torch_memory(torch) / 1e9, "GB")
    return rate


def explain_step(check: Check, run: training.Training) -> None:
    out = check.work / "roof.json"
    check.commands.must([check.program("bench_kernels"), "--device=cuda", "--filter=sum",
                         "--seconds=0.2", f"--json={out}"])
    roof = json.loads(out.read_text())["roof"]
    check.data["step"] = step_floor.explain(run.profile(), roof)
    # Below zero: time was counted twice, which explains nothing either.
    check.at_most("part of a step that is not explained",
                  abs(check.data["step"]["unexplained_percent"]), 5, "%")


def run(check: Check) -> None:
    """GPT-2 124M, B=64 T=1024, 8 micro-steps: 524,288 tokens a step."""
    shard = make_shard(check, 64 * 1024)
    arguments = arguments_of("gpt2-124m", shard, 64, 8, WARM_UP + 50)
    has_profile = training.knows(check, "log.profile_step")
    if has_profile:
        arguments.append(f"--log.profile_step={PROFILED_STEP}")
    ours = train(check, "own", arguments)
    torch = run_torch(check, "124m", 64, 8, 30)
    rate = hold_against_torch(check, ours, torch)
    check.at_least("tokens/s, median of 50 steps", rate, 550_000, "tokens/s")
    check.at_least("PyTorch's tokens/s, below which the comparison is void",
                   torch["tokens_per_s"], 500_000, "tokens/s")
    if has_profile:
        explain_step(check, ours)
    else:
        check.problem("this build has no log.profile_step: the step is not explained")
    if training.knows(check, "cudnn"):
        short = arguments_of("gpt2-124m", shard, 64, 8, WARM_UP + 10)
        cudnn = train(check, "cudnn", [*short, "--model.attention=cudnn"])
        library = CUDNN.search(cudnn.output)
        check.data["cudnn"] = {
            **cudnn.measured(WARM_UP), "library": library[1] if library else "",
            "memory": vars(training.hold_memory(check, cudnn, "cuDNN's attention: "))}
        if library is None:
            check.problem("the run with model.attention=cudnn names no version of cuDNN")
    else:
        check.problem("this build has no model.attention=cudnn: its figure is not shown")


def run_1558m(check: Check) -> None:
    """GPT-2 1558M, B=16 T=1024, one micro-step: 16,384 tokens a step."""
    shard = make_shard(check, 16 * 256)
    ours = train(check, "own", arguments_of("gpt2-1558m", shard, 16, 1, WARM_UP + 30))
    hold_against_torch(check, ours, run_torch(check, "1558m", 16, 1, 20))
