"""Which recorded parts are older than the files they depend on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_check import results, sources


def state_of(entry: dict[str, Any] | None, now: str) -> str:
    if entry is None:
        return "never run"
    outcome = "passed" if entry["passed"] else f"FAILED ({len(entry['problems'])} problems)"
    if entry["changed_files"]:
        outcome += f", with {len(entry['changed_files'])} files changed since the commit"
    age = "up to date" if entry["sources"] == now else "OLDER THAN ITS SOURCES"
    return f"{age}: {outcome} at {entry['commit'][:7]}, {entry['date'][:10]}"


def lines(root: Path = sources.ROOT) -> list[str]:
    """One line a results file and part."""
    hashes = sources.hashes(root)
    found = []
    for path in sorted((root / "bench/results").glob("*.json")):
        try:
            parts = results.read(path)["parts"]
            found += [f"{path.name} {name}: {state_of(parts.get(name), now)}"
                      for name, now in hashes.items()]
        except (ValueError, KeyError, TypeError) as error:
            found.append(f"{path.name}: CANNOT BE READ: {type(error).__name__}: {error}")
    return found or ["bench/results holds no results"]
