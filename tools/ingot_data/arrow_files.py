"""Parquet and Arrow inputs. pyarrow is optional and is imported only when such a file is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ingot_data.errors import DataError, io_errors
from ingot_data.records import NOT_UTF8, NULL_ROW, Problem, Record, describe_utf8_error

_ROWS_AT_ONCE = 1024


def require_pyarrow(path: Path) -> Any:
    """The pyarrow module, or the command that installs it."""
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(
            f"{path} needs the Python package pyarrow, which is not installed; run: "
            ".venv/bin/pip install -r tools/requirements-arrow.txt"
        ) from error
    return pyarrow


def plan(path: Path, kind: str, unit_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Ranges (start, end, bytes) of row groups (Parquet) or record batches (Arrow)."""
    require_pyarrow(path)
    with _readable(path, kind):
        sizes = _row_group_sizes(path) if kind == "parquet" else _batch_sizes(path)
    start = total = 0
    for index, size in enumerate(sizes):
        total += size
        if total >= unit_bytes or index + 1 == len(sizes):
            yield start, index + 1, total
            start, total = index + 1, 0


def read(path: Path, kind: str, start: int, end: int, key: str) -> Iterator[Record]:
    """The rows of the given row groups or record batches, places counted from 1."""
    require_pyarrow(path)
    with _readable(path, kind):
        place = 0
        batches = _parquet_batches if kind == "parquet" else _arrow_batches
        for batch in batches(path, start, end, key):
            for value in _column(batch, path, key):
                place += 1
                yield _record(value, place)


def _record(value: Any, place: int) -> Record:
    if not value.is_valid:
        return Record(place, problem=Problem(NULL_ROW, "the cell is null"))
    try:
        return Record(place, value.as_py())
    except UnicodeDecodeError as error:
        return Record(place, problem=Problem(NOT_UTF8, describe_utf8_error(error)))


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    import pyarrow

    try:
        with io_errors("read", path):
            yield
    except pyarrow.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} cannot be read as {kind}: {reason}") from error


def _row_group_sizes(path: Path) -> list[int]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        metadata = file.metadata
        return [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]


def _parquet_batches(path: Path, start: int, end: int, key: str) -> Iterator[Any]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        _check_column(file.schema_arrow, path, key)
        yield from file.iter_batches(_ROWS_AT_ONCE, row_groups=range(start, end), columns=[key])


def _batch_sizes(path: Path) -> list[int]:
    return [max(batch.nbytes, 1) for batch in _arrow_batches(path, 0, None, None)]


def _arrow_batches(path: Path, start: int, end: int | None, key: str | None) -> Iterator[Any]:
    """Record batches of an IPC file or stream, mapped: skipping one does not read its data."""
    import pyarrow

    with pyarrow.memory_map(str(path)) as source:
        magic = source.read(6)
        source.seek(0)
        if magic == b"ARROW1":
            reader = pyarrow.ipc.open_file(source)
            last = reader.num_record_batches if end is None else end
            batches = (reader.get_batch(i) for i in range(start, last))
        else:
            reader = pyarrow.ipc.open_stream(source)
            batches = (b for i, b in enumerate(reader) if i >= start and (end is None or i < end))
        if key is not None:
            _check_column(reader.schema, path, key)
        yield from batches


def _check_column(schema: Any, path: Path, key: str) -> None:
    import pyarrow

    if key not in schema.names:
        raise DataError(
            f'{path} has no column "{key}"; its columns are {", ".join(schema.names)}; '
            "choose one with --text-key"
        )
    kind = schema.field(key).type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise DataError(f'{path}: the column "{key}" is of type {kind}, a string is needed')


def _column(batch: Any, path: Path, key: str) -> Any:
    return batch.column(batch.schema.get_field_index(key))
