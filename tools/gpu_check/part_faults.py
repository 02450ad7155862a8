"""Does the suite notice faults in CUDA code? Tries those that tools/gpu_pack.sh --faults compiled."""

from __future__ import annotations

import json

from gpu_check.check import Check

ARCHIVE = "cuda_faults.tar.xz"


def run(check: Check) -> None:
    archive = check.root / ARCHIVE
    if not archive.is_file():
        raise FileNotFoundError(f"{archive} is missing; make it with tools/gpu_pack.sh --faults")
    out = check.work / "faults.json"
    done = check.commands.run(
        [*check.script("tests/faults/run_faults.py"), "--run", str(archive), "--json", str(out),
         "--jobs", "8", "--seconds", "60"],
        environment=check.commands.environment, log="faults")
    if not out.exists():
        check.problem(f"run_faults.py {done.ended}: {done.last_lines()}")
        return
    faults = check.data["faults"] = json.loads(out.read_text())["faults"]
    for fault in faults:
        if not fault["noticed"]:
            check.problem(f"{fault['id']}: {fault['by']}")
    check.at_least("faults that a test noticed", sum(fault["noticed"] for fault in faults),
                   max(len(faults), 1), "faults")
