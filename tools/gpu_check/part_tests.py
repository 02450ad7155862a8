"""Every test program that has CUDA cases, with no case skipped."""

from __future__ import annotations

import dataclasses

from gpu_check import doctest_output
from gpu_check.check import Check
from gpu_check.commands import Done

PROGRAMS = ("tests_core", "tests_kernels", "tests_model", "tests_train")


def environment(check: Check) -> dict[str, str]:
    return {"INGOT_REQUIRE_CUDA": "1", "INGOT_SOURCE_DIR": str(check.root)}


def judge(check: Check, name: str, done: Done, is_filtered: bool = False, floor: int = 0) -> None:
    """Counts a program's tests into the part's data; what a filter left out is no skip. As many
    cases as recorded must run, and at least `floor`."""
    counts = doctest_output.parse(done.output)
    if counts is None:
        check.problem(f"{name} {done.ended} without a summary: {done.last_lines()}")
        return
    check.data.setdefault("programs", {})[name] = {
        **dataclasses.asdict(counts), "seconds": round(done.seconds, 1)}
    floor = max(floor, check.recorded(name))
    check.record(name, counts.cases)
    if done.status != 0 or counts.failed:
        names = "; ".join(counts.failed_names[:5])
        check.problem(f"{name}: {counts.failed} cases failed, it {done.ended}: {names}")
    for line in counts.skip_lines:
        check.problem(f"{name}: a test was skipped: {line}")
    if counts.skipped and not is_filtered:
        check.problem(f"{name}: {counts.skipped} cases were skipped")
    check.at_least(f"{name}: cases that ran", counts.cases, max(floor, 1), "cases")


def run(check: Check) -> None:
    for name in PROGRAMS:
        judge(check, name, check.commands.run([check.program(name)],
                                              environment=environment(check), log=name))
