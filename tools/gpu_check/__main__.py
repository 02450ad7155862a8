"""tools/gpu_check.sh: runs parts, merges their outcome into bench/results, prints a short table."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_check import (machine, part_e2e, part_export, part_faults, part_kernels, part_sanitize,
                       part_tests, part_tests_ptx80, report, results, sources, stale)
from gpu_check.check import Check
from gpu_check.commands import CommandError, Commands

RUN = {
    "tests": part_tests.run,
    "tests_ptx80": part_tests_ptx80.run,
    "sanitize": part_sanitize.run,
    "faults": part_faults.run,
    "kernels": part_kernels.run,
    "e2e": part_e2e.run,
    "e2e_1558m": part_e2e.run_1558m,
    "export": part_export.run,
}


def origin(root: Path) -> dict[str, Any]:
    """commit, changed_files and the sources' hashes: of the pack, or of this working tree."""
    path = root / sources.PACK
    if path.exists():
        return json.loads(path.read_text())
    from gpu_check import pack

    return pack.describe(root)


def binaries_of(root: Path) -> Path:
    """bin/ of a pack, build/cuda of a working tree."""
    for folder in (root / "bin", root / "build/cuda"):
        if (folder / "libingot.so").exists():
            return folder
    sys.exit(f"error: no libingot.so in {root}/bin or {root}/build/cuda\n"
             "  fix: run this in a folder made by tools/gpu_pack.sh, or run make build first")


def run_part(name: str, check: Check) -> None:
    """The part, whose every way to fail becomes a problem that the results show."""
    try:
        RUN[name](check)
    except CommandError as error:
        check.problem(str(error))
    except Exception as error:  # noqa: BLE001: whatever went wrong, the results must say so
        check.problem(f"{type(error).__name__}: {error}")


def entry_of(check: Check, base: dict[str, Any], seconds: float) -> dict[str, Any]:
    return {**base, "passed": check.passed, "problems": check.problems, "data": check.data,
            "bars": [bar.to_json() for bar in check.bars], "commands": check.commands.lines,
            "seconds": round(seconds, 1)}


def print_table(outcome: dict[str, Check]) -> None:
    for name, check in outcome.items():
        print(f"\n{name}: {'passed' if check.passed else 'FAILED'}")
        for bar in check.bars:
            print(f"  {'ok  ' if bar.passed else 'MISS'} {bar.text()}")
        for problem in check.problems:
            print("  PROBLEM " + problem.replace("\n", "\n          "))
    words = [f"{name} {'passed' if check.passed else 'FAILED'}" for name, check in outcome.items()]
    print("\n" + ", ".join(words))


def run_parts(names: list[str], arguments: argparse.Namespace) -> bool:
    root = sources.ROOT
    binaries = binaries_of(root)
    environment = machine.library_environment(binaries / "libingot.so")
    gpu = machine.gpu(str(binaries / "bench_kernels"), environment)
    versions = machine.versions(binaries / "libingot.so", environment, arguments.python)
    pack = origin(root)
    parts = sources.read_parts(root)
    file = arguments.results / results.file_name(gpu["name"])
    known = root / "bench/results" / file.name
    if not file.exists() and known.exists():
        results.write(file, results.read(known))
    outcome = {}
    for name in names:
        print(f"== {name}: {parts[name]['what']}", flush=True)
        work = arguments.work / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        check = Check(root, binaries, work,
                      Commands(work, parts[name]["seconds"], environment, arguments.python),
                      name, results.read(file)["parts"])
        base = {"commit": pack["commit"], "changed_files": pack["changed_files"],
                "sources": pack["sources"][name], "gpu": gpu, "versions": versions,
                "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        # A part that is killed leaves this, not the outcome of an earlier run.
        unfinished = {**entry_of(check, base, 0), "problems": ["the part did not come to its end"]}
        results.merge(file, gpu["name"], name, unfinished)
        begin = time.monotonic()
        run_part(name, check)
        outcome[name] = check
        try:
            results.merge(file, gpu["name"], name, entry_of(check, base, time.monotonic() - begin))
        except OSError as error:  # what was measured is still printed
            check.problem(f"the outcome cannot be written to {file}: {error}")
    print_table(outcome)
    print(f"written to {file}")
    return all(check.passed for check in outcome.values())


@contextlib.contextmanager
def alone_in(*folders: Path) -> Iterator[None]:
    """Holds the folders; two runs would also share the GPU and spoil each other's figures."""
    with contextlib.ExitStack() as stack:
        for folder in folders:
            try:
                stack.enter_context(results.locked(folder))
            except BlockingIOError:
                sys.exit(f"error: another gpu_check.sh is at work in {folder}; wait for its end")
        yield


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # as an exception, which ends what was started
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        work_on(parse_arguments())
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/gpu_check.sh", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help=f"one or more of {', '.join(RUN)}; none: all")
    parser.add_argument("--results", type=Path, default=sources.ROOT / "bench/results",
                        help="folder of <gpu>.json (default: bench/results)")
    parser.add_argument("--work", type=Path, default=sources.ROOT / "build/gpu_check",
                        help="folder for logs and runs (default: build/gpu_check)")
    parser.add_argument("--python", default="python3", help="a Python with PyTorch and transformers")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FILE",
                        help="run nothing: take the newer parts of these results over")
    parser.add_argument("--report", action="store_true",
                        help="run nothing: make the tables of docs/performance.md anew")
    parser.add_argument("--stale", action="store_true",
                        help="run nothing: say which results are older than their sources")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts if part not in RUN]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; the parts are {', '.join(RUN)}")
    arguments.work, arguments.results = arguments.work.resolve(), arguments.results.resolve()
    return arguments


def work_on(arguments: argparse.Namespace) -> None:
    if arguments.report:
        report.write()
    elif arguments.stale:
        print("\n".join(stale.lines()))
    elif arguments.merge:
        with alone_in(arguments.results):
            for other in arguments.merge:
                taken = results.merge_file(arguments.results / other.name, other)
                print(f"{other}: took over {', '.join(taken) or 'nothing'}")
    else:
        with alone_in(arguments.work, arguments.results):
            passed = run_parts(arguments.parts or list(RUN), arguments)
        sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
