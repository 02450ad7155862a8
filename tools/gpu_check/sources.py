"""The parts, and the hash over the files each of them depends on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACK = "PACK.json"


def read_parts(root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """The parts by name; the files that every part depends on are among those of each."""
    parts = json.loads((root / "tools/gpu_check/parts.json").read_text())
    common = parts.pop("common", [])
    return {name: {**part, "files": common + part["files"]} for name, part in parts.items()}


def files_of(part: dict[str, Any], root: Path) -> list[Path]:
    """The files a part depends on. ValueError when one of its patterns matches nothing."""
    found: set[Path] = set()
    for pattern in part["files"]:
        matches = [p for p in root.glob(pattern) if p.is_file() and "__pycache__" not in p.parts]
        if not matches:
            raise ValueError(f"parts.json: {pattern} matches no file below {root}")
        found.update(matches)
    return sorted(found)


def hash_of(part: dict[str, Any], root: Path) -> str:
    """Of names and contents: a file moved, added, removed or changed gives another hash. And of the
    time that the part has."""
    total = hashlib.sha256(f"{part.get('seconds')} s\n".encode())
    for path in files_of(part, root):
        name = path.relative_to(root).as_posix()
        total.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:16]


def hashes(root: Path = ROOT) -> dict[str, str]:
    return {name: hash_of(part, root) for name, part in read_parts(root).items()}
