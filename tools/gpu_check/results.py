"""bench/results/<gpu>.json: one entry a part, the last outcome, good or bad.

    {"schema": 1, "gpu": "NVIDIA H200", "parts": {"tests": ENTRY, ...}}

An entry holds passed, problems, bars, data (raw samples and figures), commands, commit,
changed_files, sources (the hash of parts.json's files), date, seconds, gpu (name, uuid) and
versions.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA = 1
# After "[" comes a line end, which no text of JSON holds.
NUMBERS = re.compile(r"\[\n([-+.\deE,\s]+)\]")


def file_name(gpu_name: str) -> str:
    """"NVIDIA H200" -> "h200.json", "NVIDIA A100-SXM4-80GB" -> "a100-sxm4-80gb.json"."""
    words = re.sub(r"^nvidia\s+", "", gpu_name.strip().lower())
    name = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    if not name:
        raise ValueError(f"the GPU is named {gpu_name!r}, of which no file name can be made")
    return name + ".json"


def read(path: Path) -> dict[str, Any]:
    """The file's content; an empty result where there is none. ValueError for anything else."""
    if not path.exists():
        return {"schema": SCHEMA, "parts": {}}
    try:
        results = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error}); restore it from git, or remove it") from error
    if not isinstance(results, dict) or not isinstance(results.get("parts", {}), dict):
        raise ValueError(f"{path} holds no results; restore it from git, or remove it")
    if results.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema {results.get('schema')}, this program writes {SCHEMA}")
    return {"parts": {}, **results}


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One at a time may write below the folder: two would lose each other's parts. BlockingIOError
    when somebody else does. The lock ends with the process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:  # some network file systems
            raise ValueError(f"{folder} cannot be locked ({error}); name --work and --results on "
                             "another disk") from error
        yield
    finally:
        os.close(handle)


def to_text(results: dict[str, Any]) -> str:
    """JSON with a list of numbers on one line."""
    text = json.dumps(results, indent=1, sort_keys=True)
    return NUMBERS.sub(lambda match: "[" + " ".join(match[1].split()) + "]", text) + "\n"


def write(path: Path, results: dict[str, Any]) -> None:
    """Whole or not at all: a run that is killed leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    try:
        partial.write_text(to_text(results))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def merge(path: Path, gpu_name: str, part: str, entry: dict[str, Any]) -> None:
    """The entry replaces that of the same part; everything else stays."""
    results = read(path)
    results["gpu"] = gpu_name
    results["parts"][part] = entry
    write(path, results)


def merge_file(path: Path, other: Path) -> list[str]:
    """Takes over the parts of `other` that are newer; their names."""
    if not other.is_file():
        raise ValueError(f"{other} is no file; name a <gpu>.json that gpu_check.sh wrote")
    ours, theirs = read(path), read(other)
    if ours.get("gpu", theirs["gpu"]) != theirs["gpu"]:
        raise ValueError(f"{other} is of {theirs['gpu']}, {path} of {ours['gpu']}")
    taken = []
    for part, entry in theirs["parts"].items():
        if part not in ours["parts"] or ours["parts"][part]["date"] < entry["date"]:
            ours["parts"][part] = entry
            taken.append(part)
    ours["gpu"] = theirs["gpu"]
    write(path, ours)
    return taken
