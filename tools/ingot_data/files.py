"""Files that appear complete or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ingot_data.errors import io_errors


def sha256_of_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_bytes(path: Path) -> bytes:
    with io_errors("read", path):
        return path.read_bytes()


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` durable, not only the contents of its files."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Writes through a temporary sibling and a rename; nothing is left when the disk is full."""
    temporary = path.with_name(f".{path.name}.partial-{os.getpid()}")
    with io_errors("write", path):
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def to_json_bytes(value: Any) -> bytes:
    """JSON text with a stable layout, so that equal values are equal bytes."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
