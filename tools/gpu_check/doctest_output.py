"""What a doctest program says of its tests."""

from __future__ import annotations

import dataclasses
import re

SUMMARY = re.compile(
    r"^\[doctest\] test cases: *(\d+) *\| *(\d+) passed *\| *(\d+) failed *\| *(\d+) skipped", re.M
)
ASSERTIONS = re.compile(r"^\[doctest\] assertions: *(\d+)", re.M)


@dataclasses.dataclass
class Counts:
    cases: int  # that ran
    passed: int
    failed: int
    skipped: int  # left out by a filter or a decorator
    assertions: int
    failed_names: list[str]
    skip_lines: list[str]  # "[skipped] ...": what a case printed instead of its CUDA half


def parse(output: str) -> Counts | None:
    """None when the output has no summary: the program did not come to its end."""
    summary = SUMMARY.search(output)
    if summary is None:
        return None
    assertions = ASSERTIONS.search(output)
    names = re.findall(r"^TEST CASE: +(.+)$", output, re.M)
    return Counts(
        *(int(number) for number in summary.groups()),
        assertions=int(assertions.group(1)) if assertions else 0,
        failed_names=sorted({name.strip() for name in names}),
        skip_lines=re.findall(r"^.*\[skipped\].*$", output, re.M),
    )
