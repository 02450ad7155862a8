"""The plan is what a process really uses: within 3 % after step 1, and after 200 steps with
evaluation and sampling. A large vocabulary makes memory large and steps cheap."""

from __future__ import annotations

import os
import re

import pytest
from programs import Workplace

LIMIT_PERCENT = 3.0
MEMORY_LINE = re.compile(r"memory after step (\d+): planned .*\(([+-]?[0-9.e-]+) %\)")


@pytest.mark.skipif(
    "sanitize" in os.environ.get("INGOT_BUILD", ""), reason="sanitizers have memory of their own")
@pytest.mark.parametrize("recompute", ["none", "block"])
def test_planned_memory_is_within_3_percent_of_what_is_used(
    workplace: Workplace, recompute: str
) -> None:
    result = workplace.train(
        "--model.hf=", "--model.preset=gpt2-tiny", "--model.vocab_size=50257",
        f"--model.recompute={recompute}", "--train.seq_len=16", "--train.micro_batch=1",
        "--train.global_batch=1", "--train.steps=200", "--eval.every=50", "--eval.batches=2",
        "--sample.every=100")
    assert result.returncode == 0, result.stderr
    found = {int(step): float(percent) for step, percent in MEMORY_LINE.findall(result.stdout)}
    assert set(found) == {1, 200}, result.stdout
    for step, percent in found.items():
        assert abs(percent) <= LIMIT_PERCENT, f"step {step}: {percent} %"
