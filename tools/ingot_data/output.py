"""The output folder appears complete, by a rename, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ingot_data.errors import DataError, io_errors
from ingot_data.files import sync_folder

MARK = "dataset.json"


def check_output(out: Path, overwrite: bool, sources: Sequence[Path]) -> None:
    """Refuses to write where something is that this program did not make."""
    if not out.exists():
        return
    if not out.is_dir():
        raise DataError(f"--out = {out} is a file; name a folder")
    with io_errors("read", out):
        entries = sorted(os.listdir(out))
    if not entries:
        return
    if not overwrite:
        raise DataError(
            f"--out = {out} is not empty ({len(entries)} entries, e.g. {entries[0]}); choose "
            "another folder or give --overwrite"
        )
    if MARK not in entries:
        raise DataError(
            f"--out = {out} has no {MARK}, so it was not written by this program and "
            "--overwrite does not remove it; choose another folder"
        )
    for source in sources:
        if out.resolve() in source.resolve().parents:
            raise DataError(f"{source} lies inside --out = {out}, which --overwrite would remove; "
                            "choose another folder")


@contextmanager
def staged_folder(out: Path) -> Iterator[Path]:
    """A sibling of `out` to write into; it takes the place of `out` when the block succeeds."""
    out = Path(os.path.abspath(out))
    staging = out.with_name(f".{out.name}.partial-{os.getpid()}")
    with io_errors("create", staging):
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
    try:
        yield staging
        with io_errors("finish", out):
            _take_place(staging, out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _take_place(staging: Path, out: Path) -> None:
    sync_folder(staging)
    old = out.with_name(f".{out.name}.replaced-{os.getpid()}")
    if out.exists():
        os.rename(out, old)
    os.rename(staging, out)
    sync_folder(out.parent)
    if old.exists():
        shutil.rmtree(old)
