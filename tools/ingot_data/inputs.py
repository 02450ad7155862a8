"""Finds the input files and cuts them into units of work whose bounds depend on them alone."""

from __future__ import annotations

import mmap
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ingot_data import arrow_files
from ingot_data.errors import DataError, io_errors
from ingot_data.records import UTF8_BOM

FORMATS = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".txt": "text", ".text": "text",
    ".md": "text", ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
}

# Large enough that handing a unit over costs little, small enough to keep all processes busy.
UNIT_BYTES = 1 << 20

# First bytes of files that are not what their name says, and what to do about it. UTF-32 comes
# before UTF-16 because its little-endian mark starts with the one of UTF-16.
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xfe\x00\x00", "is UTF-32 (little-endian byte-order mark), not UTF-8; convert it: "
                          "iconv -f UTF-32 -t UTF-8"),
    (b"\x00\x00\xfe\xff", "is UTF-32 (big-endian byte-order mark), not UTF-8; convert it: "
                          "iconv -f UTF-32 -t UTF-8"),
    (b"\xff\xfe", "is UTF-16 (little-endian byte-order mark), not UTF-8; convert it: "
                  "iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "is UTF-16 (big-endian byte-order mark), not UTF-8; convert it: "
                  "iconv -f UTF-16 -t UTF-8"),
    (b"\x1f\x8b", "is gzip-compressed; unpack it first: gunzip"),
    (b"\x28\xb5\x2f\xfd", "is zstd-compressed; unpack it first: unzstd"),
    (b"PAR1", "is a Parquet file; give --format parquet"),
    (b"ARROW1", "is an Arrow file; give --format arrow"),
    (b"version https://git-lfs", "is a Git LFS pointer, not the data; fetch it: git lfs pull"),
)


@dataclass(frozen=True)
class InputFile:
    """One input file and how to read it."""

    path: Path
    format: str
    num_bytes: int


@dataclass(frozen=True)
class Unit:
    """A part of one file that one process reads at once.

    `start` and `end` are bytes for text formats, row groups or record batches for columns.
    """

    file: InputFile
    start: int
    end: int
    num_bytes: int


def find_inputs(names: list[Path], forced_format: str | None) -> list[InputFile]:
    """The files behind the --input arguments: in the order given, folders sorted by path."""
    found: list[InputFile] = []
    for name in names:
        with io_errors("read", name):
            is_folder = stat.S_ISDIR(name.stat().st_mode)
        found += _files_of_folder(name, forced_format) if is_folder else [
            _input_file(name, forced_format)
        ]
    seen: dict[Path, Path] = {}
    for file in found:
        other = seen.setdefault(file.path.resolve(), file.path)
        if other is not file.path:
            raise DataError(f"{file.path} is given twice (also as {other}); name each input once")
    return found


def _files_of_folder(folder: Path, forced_format: str | None) -> list[InputFile]:
    with io_errors("read", folder):
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
    paths = [p for p in paths if not any(part[0] == "." for part in p.relative_to(folder).parts)]
    chosen = [path for path in paths if forced_format or path.suffix.lower() in FORMATS]
    if not chosen:
        raise DataError(
            f"the folder {folder} holds no input file: {len(paths)} files, none ends in "
            f"{_known_endings()}; give --format to read them all"
        )
    if len(chosen) < len(paths):
        print(f"note: {len(paths) - len(chosen)} files of {folder} are not read, their names do "
              f"not end in {_known_endings()}")
    return [_input_file(path, forced_format) for path in chosen]


def _known_endings() -> str:
    return ", ".join(FORMATS)


def _input_file(path: Path, forced_format: str | None) -> InputFile:
    with io_errors("read", path):
        info = path.stat()
    if not stat.S_ISREG(info.st_mode):
        raise DataError(f"{path} is not a regular file; write its content into one first")
    kind = forced_format or FORMATS.get(path.suffix.lower())
    if kind is None:
        raise DataError(
            f"{path} ends in '{path.suffix}', known endings are {_known_endings()}; "
            "rename it or give --format"
        )
    file = InputFile(path, kind, info.st_size)
    if kind in ("jsonl", "json", "text"):
        _refuse_other_encodings(file)
    return file


def _refuse_other_encodings(file: InputFile) -> None:
    with io_errors("read", file.path), open(file.path, "rb") as stream:
        head = stream.read(64)
    for signature, text in _SIGNATURES:
        if head.startswith(signature):
            raise DataError(f"{file.path} {text}")
    if file.format != "text" and 0 in head[:4]:
        raise DataError(
            f"{file.path} starts with the bytes {head[:4].hex(' ')}: UTF-16 or UTF-32 without a "
            "byte-order mark, not UTF-8; convert it with iconv"
        )


def plan_units(file: InputFile, delimiter: bytes | None) -> Iterator[Unit]:
    """Cuts a file at record bounds. `delimiter` is the one of plain text, None for whole files."""
    if file.format in ("parquet", "arrow"):
        for start, end, num_bytes in arrow_files.plan(file.path, file.format, UNIT_BYTES):
            yield Unit(file, start, end, num_bytes)
    elif file.format == "jsonl":
        yield from _cut(file, b"\n", skip_ahead=True)
    elif file.format == "text" and delimiter:
        yield from _cut(file, delimiter, skip_ahead=False)
    elif file.num_bytes:
        yield Unit(file, 0, file.num_bytes, file.num_bytes)


def _cut(file: InputFile, delimiter: bytes, skip_ahead: bool) -> Iterator[Unit]:
    """Units of about UNIT_BYTES that end behind a delimiter.

    A delimiter of several bytes may overlap itself ("aa" in "aaa"); to cut where a split from
    the left would, every one is visited. A single byte cannot, so the search may jump ahead.
    """
    if file.num_bytes == 0:
        return
    with io_errors("read", file.path), open(file.path, "rb") as stream:
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            start = cursor = 0
            while start < len(data):
                at = data.find(delimiter, max(cursor, start + UNIT_BYTES) if skip_ahead else cursor)
                cursor = len(data) if at < 0 else at + len(delimiter)
                if at < 0 or cursor - start >= UNIT_BYTES:
                    yield Unit(file, start, cursor, cursor - start)
                    start = cursor


def read_unit_bytes(unit: Unit) -> bytes:
    """The bytes of a text unit; a byte-order mark at the start of the file is not data."""
    with io_errors("read", unit.file.path), open(unit.file.path, "rb") as stream:
        stream.seek(unit.start)
        data = stream.read(unit.end - unit.start)
    if len(data) != unit.end - unit.start:
        raise DataError(
            f"{unit.file.path} changed while it was read: {unit.end} bytes at the start, only "
            f"{unit.start + len(data)} now; run again when nothing writes to it"
        )
    if unit.start == 0 and data.startswith(UTF8_BOM):
        data = data[len(UTF8_BOM) :]
    return data
