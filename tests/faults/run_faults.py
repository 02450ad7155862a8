#!/usr/bin/env python3
"""Does the suite notice? Puts one-line faults into a copy of the tree and runs the tests.

    tests/faults/run_faults.py [--only ID ...] [--first N] [--table docs/testing.md]
    tests/faults/run_faults.py --stage FILE [--build build/cuda]          with nvcc, without a GPU
    tests/faults/run_faults.py --run FILE [--json FILE] [--jobs N] [--seconds N]      with a GPU

faults.json lists the faults: a file, a text that occurs in it exactly once, what replaces it, and
the test that has to fail (of CUDA faults also the case, where others of the file take long). The
copy lives in build/faults and is built incrementally: apply one fault, build one test binary, run
one test file, take the fault back. A fault that the tests do not notice, or that does not compile,
is a failure of this script. Needs no package.

Faults in .cu and .cuh files go through --stage and --run (cuda_faults.py); the others never do.
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

import cuda_faults

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COPY = ROOT / "build" / "faults" / "tree"
TEST_SECONDS = 300  # a fault may make a loop endless
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
CUDA_BEGIN, CUDA_END = "<!-- CUDA faults: begin -->", "<!-- CUDA faults: end -->"


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


def cuda_table(faults):
    """What a run on a GPU tries; its results are in the record of that GPU."""
    lines = ["| fault | file | what is wrong | must be noticed by |", "|---|---|---|---|"]
    for fault in faults:
        cells = (f"`{fault['id']}`", f"`{fault['file']}`", fault["what"], f"`{fault['test']}`")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def write_between(path, begin, end, lines):
    text = path.read_text()
    before, rest = text.split(begin)
    _, after = rest.split(end)
    path.write_text(f"{before}{begin}\n{lines}\n{end}{after}")


def write_table(path, results):
    write_between(path, BEGIN, END, table(results))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="ID", help="only these faults")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N faults")
    parser.add_argument("--table", type=pathlib.Path, help="write the table into this page")
    parser.add_argument("--cuda-table", type=pathlib.Path, help="list the CUDA faults in this page")
    parser.add_argument("--stage", type=pathlib.Path, metavar="FILE", help="compile CUDA faults")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda",
                        help="CUDA build folder that --stage takes the library from")
    parser.add_argument("--run", type=pathlib.Path, metavar="FILE", help="try the staged faults")
    parser.add_argument("--cpu-half", action="store_true",
                        help="with --run, without a GPU: every library must link and pass")
    parser.add_argument("--json", type=pathlib.Path, help="with --run: write the results here")
    parser.add_argument("--jobs", type=int, default=4, help="with --run: faults at a time")
    parser.add_argument("--seconds", type=int, default=cuda_faults.TEST_SECONDS,
                        help="with --run: a test that takes longer has noticed the fault")
    return parser.parse_args()


def chosen_faults(arguments):
    """Those of the mode: CUDA files with --stage, the others without."""
    wants_cuda = arguments.stage is not None
    faults = [f for f in read_faults() if cuda_faults.is_cuda(f) == wants_cuda]
    if arguments.only:
        unknown = set(arguments.only) - {fault["id"] for fault in faults}
        if unknown:
            kind = "CUDA fault" if wants_cuda else "fault"
            sys.exit(f"no {kind} {', '.join(sorted(unknown))} in tests/faults/faults.json")
        faults = [fault for fault in faults if fault["id"] in arguments.only]
    return faults[: arguments.first]


def main():
    arguments = parse_arguments()
    if arguments.run:
        sys.exit(cuda_faults.run(arguments.run, arguments.only, arguments.json, arguments.jobs,
                                 arguments.seconds, arguments.cpu_half))
    if arguments.cuda_table:
        listed = [fault for fault in read_faults() if cuda_faults.is_cuda(fault)]
        write_between(arguments.cuda_table, CUDA_BEGIN, CUDA_END, cuda_table(listed))
        return
    faults = chosen_faults(arguments)
    if arguments.table and (arguments.only or arguments.first):
        sys.exit("--table takes a run over all faults; leave --only and --first away")
    if arguments.stage:
        cuda_faults.stage(faults, apply_fault, arguments.stage.resolve(), arguments.build.resolve())
        return

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
