"""bench_kernels and PyTorch's kernels in the same run, held against copy speed and FlashAttention-2."""

from __future__ import annotations

import json
from typing import Any

from gpu_check.check import Check

# Of copy speed, on the shapes of GPT-2 124M, in bf16.
MEMORY_BOUND = ("layernorm_forward", "layernorm_backward", "residual_layernorm_forward",
                "cross_entropy", "adamw", "embedding_forward", "embedding_backward",
                "bias_gradient")
COPY_PERCENT = 80
ATTENTION_ROWS = ("B64 12/12 T1024 D64", "B16 25/25 T1024 D64", "B8 32/8 T2048 D64",
                  "B32 14/2 T1024 D64", "B4 32/32 T2048 D128", "B2 32/8 T8192 D128")
BACKWARD_PERCENT = 85


def memory_bars(check: Check, bench: dict[str, Any]) -> None:
    copy = bench["roof"]["copy_gb_per_s"]
    for op in MEMORY_BOUND:
        cases = [c for c in bench["cases"] if c["op"] == op and c["dtype"] == "bf16"]
        if not cases:
            check.problem(f"bench_kernels has no bf16 case of {op}")
        for case in cases:
            check.at_least(f"{op} {case['shape']}: part of copy speed",
                           100 * case["gb_per_s"] / copy, COPY_PERCENT, "%")


def attention_bars(check: Check, bench: dict[str, Any], torch: list[dict[str, Any]]) -> None:
    ours = {(c["op"], c["shape"]): c for c in bench["cases"] if c["dtype"] == "bf16"}
    flash2 = {c["shape"]: c for c in torch if c["backend"] == "flash2"}
    for shape in ATTENTION_ROWS:
        for way, percent in (("forward", 100), ("backward", BACKWARD_PERCENT)):
            own = ours.get((f"attention_{way}", shape))
            theirs = flash2.get(shape)
            if own is None or theirs is None:
                check.problem(f"attention {way} {shape}: {'ours' if own is None else 'PyTorch'} "
                              "was not measured")
                continue
            check.at_least(f"attention {way} {shape}: part of FlashAttention-2",
                           100 * own["tflop_per_s"] / theirs[f"{way}_tflops"], percent, "%")


def beside_torch(check: Check, bench: dict[str, Any], torch: list[dict[str, Any]]) -> None:
    """PyTorch's time in the rows of the cases that no other library has."""
    for row in torch:
        named = [c for c in bench["cases"] if (c["op"], c["shape"]) == (row["op"], row["shape"])]
        if not named:
            check.problem(f"bench/torch_kernels.py measured {row['op']} {row['shape']}, of which "
                          "bench_kernels has no case")
        for case in named:
            # Where PyTorch's users keep fp32 (AdamW), its time stands beside that of bf16, too.
            if case["library"] is None and row["dtype"] in (case["dtype"], "f32"):
                case["library"] = f"PyTorch ({row['how']}, {row['dtype']})"
                case["library_us"] = 1e3 * row["ms"]
                case["library_samples_us"] = [round(1e3 * ms, 3)
                                              for ms in row["samples_ms"][row["how"]]]


def with_rounded_samples(bench: dict[str, Any]) -> dict[str, Any]:
    """A sample in ns is what its clock can tell apart; all its digits would fill the file."""
    for case in bench["cases"]:
        for key in [key for key in case if key.endswith("samples_us")]:
            case[key] = [round(sample, 3) for sample in case[key]]
    return bench


def run(check: Check) -> None:
    out = check.work / "bench.json"
    check.commands.must([check.program("bench_kernels"), "--device=cuda", "--seconds=0.2",
                         f"--json={out}"])
    bench = with_rounded_samples(json.loads(out.read_text()))
    check.data["bench"] = bench
    if not bench["cudnn"].startswith("cuDNN "):
        check.problem(f"bench_kernels measured no cuDNN: {bench['cudnn'] or 'a build without it'}")
    attention = check.commands.must(check.script("bench/torch_attention.py")).json_lines()
    check.data["torch_attention"] = attention
    torch = check.commands.must(check.script("bench/torch_kernels.py")).json_lines()
    check.data["torch_kernels"] = torch
    beside_torch(check, bench, torch)
    memory_bars(check, bench)
    attention_bars(check, bench, attention)
