"""What a part works with: its programs, its folder, and where figures, bars and problems go."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from gpu_check.commands import Commands


@dataclasses.dataclass
class Bar:
    """A figure that must be at least (or, with is_at_most, at most) its limit."""

    what: str
    value: float
    limit: float
    unit: str
    is_at_most: bool = False

    @property
    def passed(self) -> bool:  # False for NaN and infinity, which nobody measured
        if not (math.isfinite(self.value) and math.isfinite(self.limit)):
            return False
        return self.value <= self.limit if self.is_at_most else self.value >= self.limit

    def text(self) -> str:
        """"LayerNorm forward: 78.1 %, must be at least 80 (2.4 % short)"."""
        wanted = f"must be at {'most' if self.is_at_most else 'least'} {self.limit:.6g}"
        line = f"{self.what}: {self.value:.6g} {self.unit}, {wanted}"
        if self.passed:
            return line
        if self.limit == 0 or not (math.isfinite(self.value) and math.isfinite(self.limit)):
            return f"{line} (missed)"
        off = abs(self.value / self.limit - 1) * 100
        return f"{line} ({off:.3g} % {'over' if self.is_at_most else 'short'})"

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "passed": self.passed}


class Check:
    def __init__(self, root: Path, binaries: Path, work: Path, commands: Commands,
                 name: str = "", entries: dict[str, Any] | None = None) -> None:
        self.root = root  # the sources: data and scripts
        self.binaries = binaries
        self.work = work  # a folder of this part
        self.commands = commands
        self._entries = entries or {}  # the last one of every part
        self.previous = self._entries.get(name, {})  # that of this part
        # What is demanded of the next run outlives a part that fails or is killed.
        recorded = self.previous.get("data", {}).get("recorded")
        self.data: dict[str, Any] = {"recorded": dict(recorded)} if recorded else {}
        self.bars: list[Bar] = []
        self.problems: list[str] = []

    def at_least(self, what: str, value: float, limit: float, unit: str) -> None:
        self.bars.append(Bar(what, value, limit, unit))

    def at_most(self, what: str, value: float, limit: float, unit: str) -> None:
        self.bars.append(Bar(what, value, limit, unit, is_at_most=True))

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def recorded(self, name: str, part: str = "") -> int:
        """The most cases of that name that ran so far, in this part or another; 0: none is known."""
        entry = self._entries.get(part, {}) if part else self.previous
        return entry.get("data", {}).get("recorded", {}).get(name, 0)

    def record(self, name: str, cases: int) -> None:
        """Keeps a number of cases for the runs to come. A smaller one never replaces it."""
        self.data.setdefault("recorded", {})[name] = max(self.recorded(name), cases)

    def program(self, name: str) -> str:
        return str(self.binaries / name)

    def script(self, name: str) -> list[str]:
        """The command of a Python program under bench/ or tools/."""
        return [self.commands.python, str(self.root / name)]

    @property
    def passed(self) -> bool:
        return not self.problems and bool(self.bars) and all(bar.passed for bar in self.bars)

    def missed(self) -> list[str]:
        """Everything that is wrong, a line each."""
        return self.problems + [bar.text() for bar in self.bars if not bar.passed]
