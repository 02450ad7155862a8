"""Runs train_gpt and reads what it left: records, the memory lines, the profile of a step."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
from pathlib import Path
from typing import Any

from gpu_check.check import Check

MEMORY = re.compile(
    r"memory after step (\d+): planned ([\d.]+) (\w+), measured ([\d.]+) (\w+) \(\+?([-\d.e]+) %\)"
)
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
TIMES = ("step_ms", "tokens_per_s", "forward_ms", "backward_ms", "optimizer_ms", "data_wait_ms")
DEVICE = ("gpu_power_w", "gpu_temp_c", "gpu_sm_mhz", "gpu_clocks", "gpu_mem_used_bytes")


@dataclasses.dataclass
class Memory:
    """What a run planned and measured on its device, after its last step."""

    step: int
    planned_bytes: float
    measured_bytes: float
    percent: float  # measured - planned, of planned


@dataclasses.dataclass
class Training:
    folder: Path  # log.dir
    records: list[dict[str, Any]]
    output: str
    seconds: float  # of the whole program

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [record for record in self.records if "loss" in record]

    def series(self, key: str, after: int = 0) -> list[float]:
        """A field of the steps behind `after`."""
        return [step[key] for step in self.steps if step["step"] > after and key in step]

    def last(self, key: str) -> float:
        """The last record that has the field, e.g. val_loss."""
        values = [record[key] for record in self.records if key in record]
        if not values:
            raise ValueError(f"{self.folder}/metrics.jsonl has no {key}")
        return values[-1]

    def memory(self) -> Memory:
        found = MEMORY.findall(self.output)
        if not found:
            raise ValueError(f"{self.folder}: the run printed no line 'memory after step'")
        step, planned, planned_unit, measured, measured_unit, percent = found[-1]
        return Memory(int(step), float(planned) * UNITS[planned_unit],
                      float(measured) * UNITS[measured_unit], float(percent))

    def profile(self) -> dict[str, Any]:
        return json.loads((self.folder / "profile.json").read_text())

    def measured(self, after: int) -> dict[str, Any]:
        """Raw samples of the steps behind `after`, with the median of the rates."""
        samples = {key: self.series(key, after) for key in TIMES}
        for key in DEVICE:  # what the management library reports of this card
            samples.update({key: self.series(key, after)} if key in self.steps[-1] else {})
        rates = samples["tokens_per_s"]
        return {"steps": len(rates), "after_step": after,
                "tokens_per_s": {"median": statistics.median(rates), "min": min(rates),
                                 "max": max(rates)},
                "samples": samples}


def read_records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def train(check: Check, name: str, arguments: list[str], *, program: str = "",
          seconds: float = 1e9, environment: dict[str, str] | None = None) -> Training:
    """Runs train_gpt with log.dir = the part's folder/name, to its end."""
    folder = check.work / name
    done = check.commands.must(
        [program or check.program("train_gpt"), *arguments, f"--log.dir={name}"],
        seconds=seconds, environment=environment, log=f"train-{name}")
    return Training(folder, read_records(folder / "metrics.jsonl"), done.output, done.seconds)


def hold_memory(check: Check, run: Training, of: str = "") -> Memory:
    """The bar of every run whose plan is judged; `of` comes before its name."""
    memory = run.memory()
    check.at_most(f"{of}planned against measured memory", abs(memory.percent), 3, "%")
    return memory


def knows(check: Check, text: str) -> bool:
    """Is a key, or a value of one, among the settings that this build offers?"""
    done = check.commands.must([check.program("train_gpt"), "--help-markdown"], log="help")
    return text in done.output.split("## Not in this release")[0]


def demo_arguments(root: Path) -> list[str]:
    """The demo's configuration, its shards named from any working directory."""
    shards = root / "datasets/python-stdlib/shards"
    return [str(root / "configs/python_stdlib_cuda.json"), "--train.device=cuda",
            *(f"--data.{split}={shards}/{split}*.bin" for split in ("train", "val", "test"))]
