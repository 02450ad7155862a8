#!/usr/bin/env -S python3 -I -S
"""Stands in for every program that tools/gpu_check.sh starts; its name says which one it is.

The environment variable FAKE_GPU holds JSON: {"tests_core": {"failed": 1}, ...}; what is not in it
behaves well.
"""

import json
import os
import pathlib
import sys
import time

NAME = pathlib.Path(sys.argv[0]).name
WANTED = json.loads(os.environ.get("FAKE_GPU", "{}")).get(NAME, {})


def option(name, default=None):
    """The value of the last --name=value."""
    values = [a.split("=", 1)[1] for a in sys.argv[1:] if a.startswith(f"--{name}=")]
    return values[-1] if values else default


def nvidia_smi():
    """Two cards; the second is the one that bench_kernels names."""
    assert not any(a.startswith("--id") for a in sys.argv)
    limits = "580.1, 143771 MiB, 700.00 W, 1980 MHz"
    print(f"00000000:3B:00.0, NVIDIA H100, GPU-OTHER, {limits}")
    print(f"00000000:AF:00.0, {WANTED.get('gpu', 'NVIDIA H200')}, GPU-0123, {limits}")


def tests():
    assert os.environ["INGOT_REQUIRE_CUDA"] == "1" and os.environ["INGOT_SOURCE_DIR"]
    cases, failed = WANTED.get("cases", 10), WANTED.get("failed", 0)
    is_filtered = NAME == "tests_kernels" and any("--source-file" in a for a in sys.argv)
    skipped = WANTED.get("skipped", 2 * cases if is_filtered else 0)  # a third ran
    if "skip_line" in WANTED:
        print(WANTED["skip_line"])
    if failed:
        print("TEST CASE:  layernorm: agrees with float64")
    if WANTED.get("crash"):
        print("terminate called")
        return 134
    print(f"[doctest] test cases: {cases:4} | {cases - failed:4} passed | {failed} failed | "
          f"{skipped} skipped")
    print("[doctest] assertions: 1000 | 1000 passed | 0 failed |")
    return 1 if failed else 0


def sanitizer():
    tool, file = option("tool"), option("source-file")
    if WANTED.get("finds") == f"{tool} {file}":
        print("========= ERROR SUMMARY: 3 errors")
        return 86
    cases = WANTED.get("cases", {}).get(f"{tool} {file}", 2)
    print(f"[doctest] test cases: {cases:4} | {cases:4} passed | 0 failed | 8 skipped")
    print(f"========= {'RACECHECK SUMMARY: 0 hazards' if tool == 'racecheck' else 'ERROR SUMMARY: 0 errors'}")
    return 0


def losses(steps):
    first, last = WANTED.get("losses", (10.0, 0.001))
    return [first + (last - first) * i / max(steps - 1, 1) for i in range(steps)]


def train():
    if "--help-markdown" in sys.argv:
        print("## log\n" + WANTED.get("help", "`log.profile_step` and cudnn"))
        print("## Not in this release\n`log.other`")
        return 0
    assert json.loads(pathlib.Path(sys.argv[1]).read_text()) is not None, "needs a file"
    folder = pathlib.Path(option("log.dir"))
    steps = int(option("train.steps") or 0) or 475
    checkpoint = pathlib.Path(option("checkpoint.dir") or folder / "checkpoints")
    (checkpoint / f"checkpoint-{steps}").mkdir(parents=True)
    weights = WANTED.get("weights", {}).get(folder.name, "same")
    (checkpoint / f"checkpoint-{steps}" / "model.safetensors").write_text(weights)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"train": {"seq_len": 512}}')
    rate = WANTED.get("tokens_per_s", 591000)
    rows = [{"step": i, "epoch": 5 * i / steps, "loss": loss, "grad_norm": 1.0, "lr": 1e-3,
             "tokens": 524288, "tokens_per_s": rate + i, "step_ms": 524288e3 / rate,
             "forward_ms": 214.0, "backward_ms": 670.0, "optimizer_ms": 1.3,
             "gpu_power_w": 600 + time.time() % 1, "comm_exposed_ms": 0.0, "data_wait_ms": time.time(), "token_hash": "ab"}
            for i, loss in enumerate(losses(steps), 1)]
    if WANTED.get("drifts") == folder.name:
        rows[6]["loss"] += 1e-9
    rows.append({"step": steps, "val_loss": WANTED.get("val_loss", 3.5), "val_tokens": 1000})
    rows.append({"step": steps, "test_loss": 3.6, "test_tokens": 1000})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    print("memory after step 1: planned 20.00 GiB, measured 19.00 GiB (-5 %)")
    print(f"--- sample after step {steps} (temperature 0.8, top_k 50)\ndef f(x):\n    return x\n---")
    print(f"memory after step {steps}: planned 21.59 GiB, measured 21.50 GiB "
          f"({WANTED.get(f'percent of {folder.name}', WANTED.get('percent', '-0.4169'))} %)")
    if option("model.attention") == "cudnn":
        print(f"attention: {WANTED.get('cudnn', 'cuDNN 9.19.0')}, deterministic backward pass")
    if option("log.profile_step"):
        (folder / "profile.json").write_text(json.dumps({
            "step": 6, "step_ms": 887.0, "unexplained_ms": 0.0, "parts": [
                {"name": "matmul fc", "calls": 96, "ms": WANTED.get("matmul_ms", 800.0),
                 "bytes": 1e9, "flops": 5e14, "dtype": "bf16"},
                {"name": "adamw", "calls": 2, "ms": 60.0, "bytes": 3.5e9, "flops": 0,
                 "dtype": "f32"}]}))
    return 0


def bench():
    if "--describe" in sys.argv:
        print(WANTED.get("describe", "NVIDIA H200, 0000:af:00.0"))
        return 0
    cases = [{"op": op, "shape": "65536x768", "dtype": "bf16", "us": 50.0, "samples_us": [50.0],
              "library": None, "library_us": None,
              "gb_per_s": WANTED.get("gb_per_s", 3600.0), "tflop_per_s": 0.0}
             for op in ("layernorm_forward", "layernorm_backward", "residual_layernorm_forward",
                        "cross_entropy", "adamw", "embedding_forward", "embedding_backward",
                        "bias_gradient")]
    for shape in ("B64 12/12 T1024 D64", "B16 25/25 T1024 D64", "B8 32/8 T2048 D64",
                  "B32 14/2 T1024 D64", "B4 32/32 T2048 D128", "B2 32/8 T8192 D128"):
        for way, rate in (("forward", 250.0), ("backward", 200.0)):
            cases.append({"op": f"attention_{way}", "shape": shape, "dtype": "bf16", "us": 300.0,
                          "samples_us": [300.0], "library": "cuDNN", "library_us": 250.0,
                          "gb_per_s": 100.0, "tflop_per_s": rate})
    pathlib.Path(option("json")).write_text(json.dumps({
        "device": "cuda", "cudnn": WANTED.get("cudnn", "cuDNN 9.19.0"), "cases": cases, "roof": {
            "copy_gb_per_s": 4270.0, "f32_tflop_per_s": 50.0, "bf16_tflop_per_s": 790.0}}))
    return 0


def golden():
    bf16 = option("precision.params") == "bf16"
    error = WANTED.get("bf16", 1e-2) if bf16 else WANTED.get("fp32", 1e-6)
    bad = error > 5e-2
    for what in ("logits", "loss", "grad transformer.wte.weight", "gradient norm of step 1",
                 "loss after step 1"):
        print(f"{'FAIL' if bad else 'ok  '} {what:48} error {error:10.3e}  limit {5e-2:10.3e}")
    return 1 if bad else 0


def main():
    if "sleep_s" in WANTED:
        time.sleep(WANTED["sleep_s"])
    if NAME.startswith("tests_"):
        return tests()
    return {"nvidia-smi": nvidia_smi, "compute-sanitizer": sanitizer, "train_gpt": train,
            "bench_kernels": bench, "golden_check": golden, "export_hf": lambda: 0}[NAME]() or 0


sys.exit(main())
