"""What one process does: read a unit, encode its documents, say which split each belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot_data import arrow_files
from ingot_data.errors import DataError
from ingot_data.inputs import Unit, read_unit_bytes
from ingot_data.records import (
    FORGED_EOS, TOKENIZER_FAILED, TOO_LONG, Problem, Record, read_json, read_json_lines,
    read_text, to_utf8,
)
from ingot_data.tokenizer import Encoder, encoder_for, special_pattern

TRAIN, VAL, TEST = range(3)


@dataclass(frozen=True)
class SplitRule:
    """Assigns a document by the hash of its text, so equal documents share a split.

    u = first 8 bytes, big-endian, of SHA-256(seed as 8 little-endian bytes + text in UTF-8).
    u < val_below: validation; u < test_below: test; otherwise train. Bounds are of 2^64.
    """

    seed: int
    val_below: int
    test_below: int

    def split_of(self, data: bytes) -> int:
        digest = hashlib.sha256(self.seed.to_bytes(8, "little") + data).digest()
        value = int.from_bytes(digest[:8], "big")
        if value < self.val_below:
            return VAL
        return TEST if value < self.test_below else TRAIN


@dataclass(frozen=True)
class WorkerOptions:
    """What a process needs to know; the same for all units."""

    tokenizer_kind: str
    tokenizer_file: Path
    token_bytes: int
    eos_id: int | None
    eos_text: str | None
    unk_id: int | None
    special_texts: tuple[str, ...]
    parse_special: bool
    skip_invalid: bool
    text_key: str
    text_delimiter: bytes | None
    max_document_bytes: int
    split_rule: SplitRule


@dataclass
class Counts:
    """What is worth telling about documents, summed over units."""

    documents: int = 0
    empty: int = 0
    with_special_text: int = 0
    with_lone_surrogates: int = 0
    with_unknown_tokens: int = 0
    unknown_tokens: int = 0
    text_bytes: list[int] = field(default_factory=lambda: [0, 0, 0])
    skipped: dict[str, int] = field(default_factory=dict)

    def add(self, other: Counts) -> None:
        self.documents += other.documents
        self.empty += other.empty
        self.with_special_text += other.with_special_text
        self.with_lone_surrogates += other.with_lone_surrogates
        self.with_unknown_tokens += other.with_unknown_tokens
        self.unknown_tokens += other.unknown_tokens
        self.text_bytes = [a + b for a, b in zip(self.text_bytes, other.text_bytes)]
        for category, count in other.skipped.items():
            self.skipped[category] = self.skipped.get(category, 0) + count


@dataclass
class UnitResult:
    """The documents of a unit: their ids behind one another, their lengths and splits."""

    tokens: NDArray[np.unsignedinteger]
    lengths: list[int]
    splits: list[int]
    num_places: int  # Lines or rows, to number those of the next unit of the file.
    counts: Counts
    first_problems: dict[str, Record]
    stop: Record | None = None  # The record that ends the run.


class _UnitEncoder:
    def __init__(self, options: WorkerOptions, encoder: Encoder) -> None:
        self._options = options
        self._encoder = encoder
        self._pattern = special_pattern(options.special_texts)
        self.dtype = np.dtype("<u2") if options.token_bytes == 2 else np.dtype("<u4")
        self._eos = np.array([] if options.eos_id is None else [options.eos_id], self.dtype)
        self.pieces: list[NDArray[np.unsignedinteger]] = []
        self.lengths: list[int] = []
        self.splits: list[int] = []
        self.counts = Counts()

    def add(self, text: str) -> Problem | None:
        """Encodes one document; gives back why it cannot be taken, if so."""
        text, data, had_surrogates = to_utf8(text)
        if not data:
            self.counts.empty += 1
            return None
        limit = self._options.max_document_bytes
        if len(data) > limit:
            detail = (f"{len(data)} bytes, the limit is {limit}: split it (--text-delimiter for "
                      "plain text) or raise --max-document-mib")
            return Problem(TOO_LONG, detail)
        has_special = bool(self._pattern and self._pattern.search(text))
        try:
            ids = self._encoder.encode(text, data)
        except DataError as error:
            return Problem(TOKENIZER_FAILED, str(error))
        if len(ids) == 0:
            self.counts.empty += 1
            return None
        forged = self._forged_eos(text, ids)
        if forged:
            return forged
        self.counts.with_special_text += has_special
        self.counts.with_lone_surrogates += had_surrogates
        self._count_unknown(ids)
        self._store(ids, data)
        return None

    def _forged_eos(self, text: str, ids: NDArray[np.unsignedinteger]) -> Problem | None:
        """A tokenizer whose end-of-document token is not marked special may still find it."""
        options = self._options
        if options.parse_special or options.eos_text is None or options.eos_text not in text:
            return None
        if not (ids == options.eos_id).any():
            return None
        detail = (f"{options.eos_text!r} in the text became id {options.eos_id}; mark the token "
                  "as special in the tokenizer, or allow this with --parse-special")
        return Problem(FORGED_EOS, detail)

    def _count_unknown(self, ids: NDArray[np.unsignedinteger]) -> None:
        if self._options.unk_id is not None:
            unknown = int(np.count_nonzero(ids == self._options.unk_id))
            self.counts.unknown_tokens += unknown
            self.counts.with_unknown_tokens += unknown > 0

    def _store(self, ids: NDArray[np.unsignedinteger], data: bytes) -> None:
        split = self._options.split_rule.split_of(data)
        self.pieces += [ids, self._eos]
        self.lengths.append(len(ids) + len(self._eos))
        self.splits.append(split)
        self.counts.documents += 1
        self.counts.text_bytes[split] += len(data)


def records_of(unit: Unit, options: WorkerOptions) -> tuple[Iterator[Record], int | None]:
    """The records of a unit, and its number of lines where that is known before reading."""
    kind = unit.file.format
    if kind in ("parquet", "arrow"):
        rows = arrow_files.read(unit.file.path, kind, unit.start, unit.end, options.text_key)
        return rows, None
    data = read_unit_bytes(unit)
    num_lines = data.count(b"\n")
    if kind == "jsonl":
        return read_json_lines(data, options.text_key), num_lines
    if kind == "json":
        return read_json(data, options.text_key), num_lines
    return read_text(data, options.text_delimiter), num_lines


def process_unit(unit: Unit, options: WorkerOptions) -> UnitResult:
    """Encodes a unit. In strict mode the first problem ends it and is handed back as `stop`."""
    encoder = encoder_for(options.tokenizer_kind, options.tokenizer_file, options.token_bytes,
                          options.parse_special)
    documents = _UnitEncoder(options, encoder)
    first_problems: dict[str, Record] = {}
    stop: Record | None = None
    records, num_places = records_of(unit, options)
    last_place = 0
    for record in records:
        last_place = record.place
        problem = record.problem or documents.add(record.text)
        if problem is None:
            continue
        bad = Record(record.place, problem=problem)
        if problem.fatal or not options.skip_invalid:
            stop = bad
            break
        skipped = documents.counts.skipped
        skipped[problem.category] = skipped.get(problem.category, 0) + 1
        first_problems.setdefault(problem.category, bad)
    tokens = np.concatenate([np.zeros(0, documents.dtype), *documents.pieces])
    return UnitResult(
        tokens, documents.lengths, documents.splits,
        last_place if num_places is None else num_places, documents.counts, first_problems, stop,
    )
