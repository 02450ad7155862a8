"""A profiler shows a run by the names of the code. Method: a library made for the test sits where a
profiler would and writes down the NVTX ranges of a short run on the CPU."""

from __future__ import annotations

import subprocess

import pytest
from programs import ROOT, Workplace


def test_steps_layers_and_ops_are_nested_ranges(workplace: Workplace, tmp_path_factory) -> None:
    if "CUDA no" in workplace.train("--version").stdout:
        pytest.skip("NVTX belongs to builds with CUDA")
    folder = tmp_path_factory.mktemp("nvtx")
    library, record = folder / "librecorder.so", folder / "ranges.txt"
    subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", "-o", library,
                    ROOT / "tests/e2e/nvtx_recorder.cpp"], check=True)
    done = workplace.train("--train.steps=2", environment={
        "NVTX_INJECTION64_PATH": str(library), "NVTX_RECORD": str(record)})
    assert done.returncode == 0, done.stderr
    lines = record.read_text().splitlines()
    assert lines.pop() == "open at the end: 0"
    assert lines.count("step") == 2 and lines.count(" micro-step") == 2 * 2
    text = "\n".join(lines)
    assert text.startswith(
        "step\n micro-step\n  embedding forward\n   embedding_forward\n"
        "  block 0 forward\n   layernorm_forward\n   attention\n    matmul_forward\n"
        "    attention_forward\n    matmul_forward\n    residual_layernorm_forward\n"
        "   mlp\n    matmul_forward\n    matmul_forward\n  block 1 forward\n")
    assert "\n  head and loss\n   lm_head_loss\n    matmul_forward\n    cross_entropy\n" in text
    assert "\n  block 1 backward\n   mlp backward\n    bias_gradient\n    matmul_wgrad\n" in text
    assert "\n  embedding backward\n   embedding_backward\n  sum\n" in text
    assert "\n optimizer\n  squared_norm\n" in text and "\n  adamw\n" in text
    assert "\nevaluation\n" in text and "\nsample\n" in text
