"""The token shard format: a writer for one split and a strict reader (docs/formats.md)."""

from __future__ import annotations

import os
import struct
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ingot_data.errors import DataError, io_errors

MAGIC = b"INGOTTOK"
VERSION = 1
HEADER_BYTES = 4096
NO_EOS = 0xFFFFFFFF
SPLIT_NAMES = ("train", "val", "test")
MAX_VOCAB_16_BIT = 65536

_HEADER = struct.Struct("<8sIIQQIIIIQQ32s")


@dataclass(frozen=True)
class ShardMeta:
    """What all shards of one data set share."""

    vocab_size: int
    eos_id: int | None
    tokenizer_sha256: bytes

    @property
    def token_bytes(self) -> int:
        """16-bit ids reach 65535, so they serve a vocabulary of at most 65536."""
        return 2 if self.vocab_size <= MAX_VOCAB_16_BIT else 4

    @property
    def dtype(self) -> np.dtype:
        return np.dtype("<u2") if self.token_bytes == 2 else np.dtype("<u4")


@dataclass(frozen=True)
class Header:
    """The fields of a shard file's header."""

    token_bytes: int
    num_tokens: int
    num_documents: int
    vocab_size: int
    eos_id: int | None
    split: int
    shard_index: int
    tokens_offset: int
    index_offset: int
    tokenizer_sha256: bytes

    def to_bytes(self) -> bytes:
        eos = NO_EOS if self.eos_id is None else self.eos_id
        packed = _HEADER.pack(
            MAGIC, VERSION, self.token_bytes, self.num_tokens, self.num_documents,
            self.vocab_size, eos, self.split, self.shard_index, self.tokens_offset,
            self.index_offset, self.tokenizer_sha256,
        )
        return packed.ljust(HEADER_BYTES, b"\0")


def align8(offset: int) -> int:
    return (offset + 7) // 8 * 8


@dataclass(frozen=True)
class ShardRecord:
    """A finished shard file, as dataset.json lists it."""

    file: str
    tokens: int
    documents: int
    file_bytes: int


class _OpenShard:
    """One shard being written: tokens first, then the index, the header last.

    The header stays zero until close(), so a file that was cut off is never taken for a shard.
    """

    def __init__(self, path: Path, split: int, index: int) -> None:
        self.path = path
        self.split = split
        self.index = index
        self.num_tokens = 0
        self.starts = array("Q")
        with io_errors("write", path):
            self.file: BinaryIO = open(path, "wb")
            self.file.write(bytes(HEADER_BYTES))

    def append(self, tokens: NDArray[np.unsignedinteger], starts_document: bool) -> None:
        if starts_document:
            self.starts.append(self.num_tokens)
        with io_errors("write", self.path):
            self.file.write(tokens.tobytes())
        self.num_tokens += len(tokens)

    def close(self, meta: ShardMeta) -> ShardRecord:
        tokens_end = HEADER_BYTES + self.num_tokens * meta.token_bytes
        index_offset = align8(tokens_end)
        header = Header(
            token_bytes=meta.token_bytes, num_tokens=self.num_tokens,
            num_documents=len(self.starts), vocab_size=meta.vocab_size, eos_id=meta.eos_id,
            split=self.split, shard_index=self.index, tokens_offset=HEADER_BYTES,
            index_offset=index_offset, tokenizer_sha256=meta.tokenizer_sha256,
        )
        starts = np.frombuffer(self.starts, dtype=np.uint64) if self.starts else np.zeros(0)
        with io_errors("write", self.path):
            self.file.write(bytes(index_offset - tokens_end))
            self.file.write(starts.astype("<u8").tobytes())
            self.file.seek(0)
            self.file.write(header.to_bytes())
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
        file_bytes = index_offset + 8 * len(self.starts)
        return ShardRecord(self.path.name, self.num_tokens, len(self.starts), file_bytes)

    def abandon(self) -> None:
        """Closes the file without finishing it; the caller removes the folder."""
        try:
            self.file.close()
        except OSError:
            pass  # The buffered rest does not fit on the disk, and the file is thrown away.


class SplitWriter:
    """Writes the documents of one split into shards of at most `shard_tokens` tokens.

    A document that does not fit into what is left of a shard starts the next one. Only a
    document longer than a whole shard is cut: it starts in a fresh shard and goes on in the
    following ones.
    """

    def __init__(self, folder: Path, split: int, shard_tokens: int, meta: ShardMeta) -> None:
        self._folder = folder
        self._split = split
        self._shard_tokens = shard_tokens
        self._meta = meta
        self._open: _OpenShard | None = None
        self._records: list[ShardRecord] = []

    def add_document(self, tokens: NDArray[np.unsignedinteger]) -> None:
        """Appends one document, its end-of-document token included."""
        room = self._shard_tokens - (self._open.num_tokens if self._open else 0)
        if len(tokens) > room and self._open and self._open.num_tokens:
            self._finish_shard()
        for start in range(0, len(tokens), self._shard_tokens):
            if start:
                self._finish_shard()
            piece = tokens[start : start + self._shard_tokens]
            self._current().append(piece, starts_document=start == 0)

    def close(self) -> list[ShardRecord]:
        """Finishes the last shard and gives all files of the split names of one length."""
        if self._open:
            self._finish_shard()
        width = max(3, len(str(len(self._records) - 1)))
        renamed = []
        for index, record in enumerate(self._records):
            final = self._folder / f"{SPLIT_NAMES[self._split]}_{index:0{width}d}.bin"
            with io_errors("rename", final):
                os.rename(self._folder / record.file, final)
            renamed.append(
                ShardRecord(final.name, record.tokens, record.documents, record.file_bytes)
            )
        return renamed

    def abandon(self) -> None:
        if self._open:
            self._open.abandon()
            self._open = None

    def _current(self) -> _OpenShard:
        if self._open is None:
            index = len(self._records)
            path = self._folder / f"{SPLIT_NAMES[self._split]}.{index}.unfinished"
            self._open = _OpenShard(path, self._split, index)
        return self._open

    def _finish_shard(self) -> None:
        assert self._open is not None
        self._records.append(self._open.close(self._meta))
        self._open = None


@dataclass(frozen=True)
class Shard:
    """A shard read back; `tokens` and `starts` are maps of the file, not copies."""

    header: Header
    tokens: NDArray[np.unsignedinteger]
    starts: NDArray[np.uint64]

    def documents(self) -> list[NDArray[np.unsignedinteger]]:
        """The documents that start in this shard, end-of-document tokens included."""
        bounds = [*map(int, self.starts), self.header.num_tokens]
        return [self.tokens[a:b] for a, b in zip(bounds, bounds[1:])]


def read_header(path: Path) -> Header:
    """Reads and checks the header against the size of the file."""
    with io_errors("read", path):
        with open(path, "rb") as file:
            raw = file.read(HEADER_BYTES)
            size = os.fstat(file.fileno()).st_size
    if len(raw) < HEADER_BYTES or raw[:8] != MAGIC:
        raise DataError(f"{path} is not a token shard: its first 8 bytes are {raw[:8]!r}, "
                        f"expected {MAGIC!r}")
    fields = _HEADER.unpack_from(raw)
    if fields[1] != VERSION:
        raise DataError(f"{path} has shard version {fields[1]}, this program reads {VERSION}")
    eos = None if fields[6] == NO_EOS else fields[6]
    header = Header(
        token_bytes=fields[2], num_tokens=fields[3], num_documents=fields[4],
        vocab_size=fields[5], eos_id=eos, split=fields[7], shard_index=fields[8],
        tokens_offset=fields[9], index_offset=fields[10], tokenizer_sha256=fields[11],
    )
    expected = header.index_offset + 8 * header.num_documents
    tokens_end = header.tokens_offset + header.num_tokens * header.token_bytes
    if header.token_bytes not in (2, 4) or header.index_offset != align8(tokens_end):
        raise DataError(f"{path} has a damaged header: {header}")
    if size != expected:
        raise DataError(f"{path} has {size} bytes, its header asks for {expected}")
    return header


def read_shard(path: Path) -> Shard:
    """Maps a shard read-only; nothing is loaded until it is used."""
    header = read_header(path)
    dtype = np.dtype("<u2") if header.token_bytes == 2 else np.dtype("<u4")
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    tokens_end = header.tokens_offset + header.num_tokens * header.token_bytes
    tokens = raw[header.tokens_offset : tokens_end].view(dtype)
    return Shard(header, tokens, raw[header.index_offset :].view("<u8"))
