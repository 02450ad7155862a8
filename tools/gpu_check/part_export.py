"""What a trained model is worth elsewhere: golden values, transformers, the demo, repetition."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

from gpu_check import training
from gpu_check.check import Check

GOLDEN = "tests/golden/gpt2-tiny"
LINE = re.compile(r"^(ok|FAIL) +(.+?) +error +(\S+) +limit +(\S+)$", re.M)
SAMPLE = re.compile(r"^--- sample after step (\d+) .*?\n(.*?)\n---$", re.M | re.S)
# A loss and a norm are one number, whose error may come out near zero by luck, so the worst of each
# series of steps is compared with the worst. A gradient's error is the norm of a whole tensor.
SERIES = ("loss", "gradient norm of step")
# What a record says of the numbers, not of the time or the card.
NUMBERS = ("event", "first_step", "step", "epoch", "loss", "grad_norm", "lr", "tokens", "token_hash",
           "val_loss", "val_tokens", "test_loss", "test_tokens")


def golden_check(check: Check, folder: str, precision: str) -> dict[str, dict[str, float]]:
    """{"logits": {"error": ..., "limit": ...}, ...}; a line that fails is a problem."""
    done = check.commands.run([check.program("golden_check"), folder, "--device=cuda",
                               f"--precision.params={precision}"], log=f"golden-{precision}")
    lines = {}
    for verdict, what, error, limit in LINE.findall(done.output):
        lines[what] = {"error": float(error), "limit": float(limit)}
        if verdict != "ok":
            check.problem(f"golden_check {precision} {folder}: {what}: error {error}, "
                          f"limit {limit}")
    if not lines or (done.status != 0 and not check.problems):
        check.problem(f"golden_check {precision} {folder} {done.ended}: {done.last_lines()}")
    return lines


def worst_of(errors: dict[str, float]) -> dict[str, float]:
    """The errors, with each series of steps replaced by its largest; NaN is the worst there is."""
    worst: dict[str, float] = {}
    for what, error in errors.items():
        name = next((f"{s}, worst step" for s in SERIES if what.startswith(s)), what)
        worst[name] = max(worst.get(name, 0.0), math.inf if math.isnan(error) else error)
    return worst


def ratio_of(ours: float, theirs: float) -> float:
    """How many times their error ours is. NaN, which meets no bar, where that says nothing."""
    if not math.isfinite(theirs):
        return math.nan
    return ours / theirs if theirs > 0 else math.inf if ours > 0 else 0.0


def compare_bf16(check: Check, ours: dict[str, dict[str, float]]) -> None:
    torch: dict[str, dict[str, float]] = {}
    for mode in ("pure", "autocast"):
        done = check.commands.must([*check.script("bench/torch_golden.py"),
                                    str(check.root / GOLDEN), f"--mode={mode}"])
        torch[mode] = {line["what"]: math.inf if line["error"] is None else line["error"]
                       for line in done.json_lines()}
    check.data["torch_bf16"] = torch
    own = worst_of({what: line["error"] for what, line in ours.items()})
    theirs = worst_of(torch["pure"])
    if own.keys() != theirs.keys():
        check.problem("golden_check and bench/torch_golden.py name other quantities: "
                      f"{sorted(own.keys() ^ theirs.keys())[:5]}")
    ratios = {what: ratio_of(own[what], theirs[what]) for what in own.keys() & theirs.keys()}
    check.data["bf16_ratios"] = ratios
    worst = sorted(ratios.items(), key=lambda item: -math.inf if math.isnan(item[1]) else -item[1])
    for what, ratio in worst[:3]:
        check.at_most(f"bf16 error of PyTorch's (pure bf16): {what}", ratio, 2, "times")


def golden(check: Check) -> None:
    folder = str(check.root / GOLDEN)
    check.data["golden"] = {p: golden_check(check, folder, p) for p in ("fp32", "bf16")}
    if "logits" in check.data["golden"]["fp32"]:
        check.at_most("golden fp32 logits", check.data["golden"]["fp32"]["logits"]["error"], 1e-4,
                      "absolute")
    compare_bf16(check, check.data["golden"]["bf16"])


def demo(check: Check) -> training.Training:
    shards = check.root / "datasets/python-stdlib/shards"
    bars = json.loads((shards / "dataset.json").read_text())["ngram_losses"]
    run = training.train(check, "demo", training.demo_arguments(check.root))
    check.data["demo"] = {
        "val_loss": run.last("val_loss"), "test_loss": run.last("test_loss"),
        "ngram_losses": bars, "epochs": run.last("epoch"), "seconds": run.seconds,
        "loss": run.series("loss"), "step_ms": run.series("step_ms"),
        "samples": {step: text for step, text in SAMPLE.findall(run.output)}}
    check.at_most("demo: validation loss against trigrams", run.last("val_loss"), bars["trigram"],
                  "nats")
    check.at_most("demo: epochs", run.last("epoch"), 5, "epochs")
    check.at_most("demo: time of the whole program", run.seconds, 120, "s")
    check.data["demo"]["memory"] = vars(training.hold_memory(check, run, "demo: "))
    if not check.data["demo"]["samples"]:
        check.problem("the demo printed no sample")
    return run


def export(check: Check, run: training.Training) -> None:
    """The demo's model through export_hf and transformers, and back into the engine in fp32."""
    step = len(run.steps)
    window = json.loads((run.folder / "config.json").read_text())["train"]["seq_len"]
    check.commands.must([check.program("export_hf"), f"demo/checkpoints/checkpoint-{step}",
                         "exported"])
    done = check.commands.must([
        *check.script("tools/gpu_check/transformers_golden.py"), "exported", "transformers",
        f"--window={window}",
        "--tokens", str(check.root / "datasets/python-stdlib/shards/val_000.bin")],
        environment={"TQDM_DISABLE": "1"})
    theirs = done.last_json()
    lines = golden_check(check, "transformers", "fp32")
    check.data["export"] = {"transformers": theirs, "lines": lines}
    if "logits" in lines:
        check.at_most("export: logits of transformers against the engine's",
                      lines["logits"]["error"], 1e-4, "absolute")
    check.at_most("export: validation loss by transformers against the run's (bf16)",
                  abs(theirs["loss"] - run.last("val_loss")), 0.02, "nats")


def numbers_of(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k in NUMBERS} for record in records]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def repetition(check: Check) -> None:
    """Two runs of one configuration; the second reads the first one's choice of algorithms."""
    steps = 30
    arguments = training.demo_arguments(check.root) + [
        "--train.epochs=0", f"--train.steps={steps}", "--schedule.warmup_steps=10",
        "--eval.every=10", "--data.test=", "--sample.every=0", "--sample.tokens=0"]
    first = training.train(check, "first", arguments)
    plans = first.folder / "matmul_plans.txt"
    second = training.train(check, "second", [*arguments, f"--train.matmul_plans={plans}"])
    weights = [digest(run.folder / f"checkpoints/checkpoint-{steps}/model.safetensors")
               for run in (first, second)]
    check.data["repetition"] = {"steps": steps, "weights": weights,
                                "loss": [run.series("loss") for run in (first, second)]}
    pairs = zip(numbers_of(first.records), numbers_of(second.records))
    differ = [a.get("step", 0) for a, b in pairs if a != b]
    if differ or len(first.records) != len(second.records):
        check.problem(f"two runs of one configuration differ from step {min(differ, default=0)} on")
    if weights[0] != weights[1]:
        check.problem("two runs of one configuration end with other weights")
    check.at_least("repetition: equal records of two runs", len(first.records) - len(differ),
                   len(first.records), "records")


def overfit(check: Check) -> None:
    run = training.train(check, "overfit", training.demo_arguments(check.root) + [
        "--train.overfit_one_batch=true", "--train.epochs=0", "--train.steps=400",
        "--train.micro_batch=8", "--train.global_batch=8", "--train.seq_len=256",
        "--schedule.warmup_steps=20", "--optimizer.weight_decay=0", "--eval.every=0",
        "--data.val=", "--data.test=", "--sample.every=0", "--sample.tokens=0"])
    losses = run.series("loss")
    check.data["overfit_loss"] = losses
    check.at_most("overfitting one batch: last loss", losses[-1], 0.01, "nats")


def run(check: Check) -> None:
    golden(check)
    export(check, demo(check))
    repetition(check)
    overfit(check)
