"""compute-sanitizer over the kernel tests: invalid accesses, races, reads of unwritten memory.

Only the engine's own kernels are watched by racecheck and initcheck: cuBLASLt's are not ours to
mend. INGOT_TEST_SIZES=small leaves out the large shapes. Racecheck is by far the slowest, so of
tensor-core attention it gets one small case of each head size. It breaks down in cuBLASLt's bf16
kernels for Hopper ("failed to handle a hardware exception"), so of the matmuls it gets the case that
takes our own kernels alone, and of the head nothing: its kernels are those of matmul and cross
entropy.

Initcheck finds little: it takes for initialized what a copy or memset has written, and each Buffer is
cleared when it is made, each tensor of a test filled with NaN or values. Reads of what no op has
written are found by that NaN, in the tests themselves. Memory left unwritten would need the writes of
cuBLASLt's kernels watched as well, whose results ours read.
"""

from __future__ import annotations

import re
import shutil

from gpu_check import doctest_output
from gpu_check.check import Check

FILES = ("adamw", "attention", "attention_flash", "bias_gradient", "cast", "cross_entropy",
         "embedding", "gelu", "global_norm", "layernorm", "lm_head", "matmul", "sum")
# Millions of elements or hundreds of launches, of kernels that other cases run as well.
LARGE = ("*2^25*", "*larger than the scratch*", "*finite differences*", "*every bf16 value*",
         "*more heads than places*")
# What racecheck gets of a file whose other cases it does not get through.
RACECHECK_CASES = {"attention_flash": "flash attention: whole tiles and a part*",
                   "matmul": "matmul: operands and results that start at odd places*"}
NO_RACECHECK = ("lm_head",)
SECONDS = 270  # of one run
AT_ONCE = 8
FOUND = 86  # the exit status by which compute-sanitizer says that it found something


def tool_of(check: Check) -> str:
    for candidate in (shutil.which("compute-sanitizer"),
                      "/usr/local/cuda/bin/compute-sanitizer"):
        if candidate and shutil.which(candidate):
            return candidate
    raise FileNotFoundError("compute-sanitizer is neither in PATH nor in /usr/local/cuda/bin")


def command_of(check: Check, sanitizer: str, tool: str, file: str) -> list[str]:
    command = [sanitizer, f"--tool={tool}", f"--error-exitcode={FOUND}", "--report-api-errors=no"]
    if tool != "memcheck":
        command += ["--kernel-name", "kns=ingot"]
    command += [check.program("tests_kernels"), f"--source-file=*test_{file}.cpp",
                f"--test-case-exclude={','.join(LARGE)}"]
    if tool == "racecheck" and file in RACECHECK_CASES:
        command.append(f"--test-case={RACECHECK_CASES[file]}")
    return command


def recorded_cases(check: Check, name: str) -> int:
    """What the last run recorded, or ran before anything was recorded."""
    runs = check.previous.get("data", {}).get("runs", {})
    return check.recorded(name) or runs.get(name, {}).get("cases", 0)


def run(check: Check) -> None:
    sanitizer = tool_of(check)
    environment = {"INGOT_REQUIRE_CUDA": "1", "INGOT_SOURCE_DIR": str(check.root),
                   "INGOT_TEST_SIZES": "small", "OMP_NUM_THREADS": "2"}
    # The slow ones first, so that nothing long is left at the end.
    order = [(tool, file) for tool in ("racecheck", "memcheck", "initcheck")
             for file in sorted(FILES, key=lambda f: not f.startswith(("attention", "matmul")))
             if tool != "racecheck" or file not in NO_RACECHECK]
    done = check.commands.at_once(
        [{"command": command_of(check, sanitizer, tool, file), "environment": environment,
          "seconds": SECONDS, "log": f"{tool}-{file}"} for tool, file in order], width=AT_ONCE)
    runs = check.data["runs"] = {}
    for (tool, file), one in zip(order, done):
        counts = doctest_output.parse(one.output)
        name, cases = f"{tool} {file}", counts.cases if counts else 0
        known = recorded_cases(check, name)
        check.record(name, max(known, cases))
        errors = re.findall(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (.+)$", one.output, re.M)
        runs[name] = {"seconds": round(one.seconds, 1), "status": one.status, "cases": cases,
                      "summary": errors[-1] if errors else ""}
        if one.status == FOUND:
            check.problem(f"{name}: {errors[-1] if errors else one.last_lines()}")
        elif one.status != 0 or counts is None or not errors:
            check.problem(f"{name} {one.ended} after {one.seconds:.0f} s: "
                          f"{one.last_lines(2)}")
        elif cases < max(known, 1) or counts.skip_lines:
            check.problem(f"{name}: ran {cases} cases of at least {max(known, 1)}, skipped "
                          f"{len(counts.skip_lines)}")
    clean = sum(run["status"] == 0 and run["cases"] > 0 for run in runs.values())
    check.at_least("runs without a finding", clean, len(order), "runs")
