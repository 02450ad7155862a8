#!/usr/bin/env python3
"""Does the suite notice? Puts one-line faults into a copy of the tree and runs the tests.

    tests/faults/run_faults.py [--only ID ...] [--first N] [--table docs/testing.md]

faults.json lists the faults: a file, a text that occurs in it exactly once, what replaces it, and
the test that has to fail. The copy lives in build/faults and is built incrementally: apply one
fault, build one test binary, run one test file, take the fault back. A fault that the tests do not
notice, or that does not compile, is a failure of this script. Needs no package.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COPY = ROOT / "build" / "faults" / "tree"
TEST_SECONDS = 300  # a fault may make a loop endless
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"


def read_faults(path=HERE / "faults.json"):
    return json.loads(path.read_text())


def apply_fault(text, fault):
    """The text with the fault in it; ValueError when its place is not there exactly once."""
    count = text.count(fault["original"])
    if count != 1:
        raise ValueError(
            f"fault {fault['id']}: {fault['file']} holds its original text {count} times, must be "
            "once; adapt tests/faults/faults.json to the new code"
        )
    return text.replace(fault["original"], fault["replacement"])


def make_copy():
    """Brings the copy up to date; files that did not change keep their times."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    wanted = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    for name in wanted:
        source, target = ROOT / name, COPY / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for path in COPY.rglob("*"):
        name = path.relative_to(COPY)
        if path.is_file() and name.parts[0] != "build" and str(name) not in wanted:
            path.unlink()


def build(targets):
    """The output of a failed build, or None."""
    command = ["cmake", "--build", str(COPY / "build/cpu"), "-j", "2", "--target", *targets]
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stdout + done.stderr


def configure():
    # The tests find the library at run time: a change of it links nothing else again.
    command = ["cmake", "--preset", "cpu", "-DINGOT_BENCH=OFF", "-DCMAKE_LINK_DEPENDS_NO_SHARED=ON"]
    subprocess.run(command, cwd=COPY, check=True, stdout=subprocess.DEVNULL)


def run_test(fault):
    """(passed, the first test case that failed or how the run ended)."""
    binary = str(COPY / "build/cpu" / fault["target"])
    command = [binary, f"--source-file=*{fault['test']}.cpp", "--abort-after=1"]
    try:
        done = subprocess.run(
            command, cwd=COPY / "build/cpu", capture_output=True, text=True, timeout=TEST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return False, f"(no end within {TEST_SECONDS} s)"
    if done.returncode == 0:
        return True, ""
    case = re.search(r"TEST CASE: +(.+)", done.stdout)
    return False, case.group(1).strip() if case else f"(ended with status {done.returncode})"


def check_without_faults(faults):
    problem = build(sorted({fault["target"] for fault in faults}))
    if problem:
        sys.exit(f"the tree does not build:\n{problem[-3000:]}")
    for target, test in sorted({(fault["target"], fault["test"]) for fault in faults}):
        passed, case = run_test({"target": target, "test": test})
        if not passed:
            sys.exit(f"{test} fails without any fault: {case}")


def try_fault(fault):
    """(was it noticed, by which case or what went wrong)."""
    path = COPY / fault["file"]
    original = path.read_text()
    path.write_text(apply_fault(original, fault))
    try:
        problem = build([fault["target"]])
        if problem:
            error = re.search(r"error: .*", problem)
            return False, f"DOES NOT COMPILE: {error.group(0) if error else problem[-300:]}"
        passed, case = run_test(fault)
        return (False, "NOT NOTICED") if passed else (True, case)
    finally:
        path.write_text(original)


def table(results):
    lines = ["| fault | file | what is wrong | noticed by |", "|---|---|---|---|"]
    for fault, _, case in results:
        cells = (f"`{fault['id']}`", f"`{fault['file']}`", fault["what"], case)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def write_table(path, results):
    text = path.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    path.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="ID", help="only these faults")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N faults")
    parser.add_argument("--table", type=pathlib.Path, help="write the table into this page")
    arguments = parser.parse_args()
    faults = read_faults()
    if arguments.only:
        unknown = set(arguments.only) - {fault["id"] for fault in faults}
        if unknown:
            sys.exit(f"no fault {', '.join(sorted(unknown))} in tests/faults/faults.json")
        faults = [fault for fault in faults if fault["id"] in arguments.only]
    faults = faults[: arguments.first]
    if arguments.table and (arguments.only or arguments.first):
        sys.exit("--table takes a run over all faults; leave --only and --first away")

    os.environ.setdefault("CCACHE_BASEDIR", str(COPY))
    make_copy()
    configure()
    check_without_faults(faults)
    results = []
    for number, fault in enumerate(faults, 1):
        begin = time.monotonic()
        noticed, case = try_fault(fault)
        results.append((fault, noticed, case))
        print(
            f"{number:3}/{len(faults)} {'ok  ' if noticed else 'FAIL'} {fault['id']:28} "
            f"{time.monotonic() - begin:5.1f} s  {case}",
            flush=True,
        )
    missed = [fault["id"] for fault, noticed, _ in results if not noticed]
    print(f"{len(results) - len(missed)} of {len(results)} faults were noticed")
    if missed:
        sys.exit(f"not noticed: {', '.join(missed)}")
    if arguments.table:
        write_table(arguments.table, results)


if __name__ == "__main__":
    main()
