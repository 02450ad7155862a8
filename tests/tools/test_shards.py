"""The token shard format against a byte-by-byte reading of docs/formats.md."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest
from ingot_data.errors import DataError
from ingot_data.shards import read_header, read_shard
from prepared import prepare, write_jsonl


@pytest.fixture
def shard_file(tmp_path: Path) -> Path:
    source = write_jsonl(tmp_path / "in.jsonl", ["ab", "cdefg"])
    prepare(source, tmp_path / "out")
    return tmp_path / "out" / "train_000.bin"


def test_every_byte_is_where_the_format_page_says(shard_file: Path) -> None:
    raw = shard_file.read_bytes()
    assert raw[0:8] == b"INGOTTOK"
    assert struct.unpack_from("<II", raw, 8) == (1, 2)
    assert struct.unpack_from("<QQ", raw, 16) == (9, 2)
    assert struct.unpack_from("<IIII", raw, 32) == (257, 256, 0, 0)
    assert struct.unpack_from("<QQ", raw, 48) == (4096, 4120)
    tokenizer = (shard_file.parent / "tokenizer.json").read_bytes()
    assert raw[64:96] == hashlib.sha256(tokenizer).digest()
    assert raw[96:4096] == bytes(4000)
    assert struct.unpack_from("<9H", raw, 4096) == (97, 98, 256, 99, 100, 101, 102, 103, 256)
    assert raw[4114:4120] == bytes(6)
    assert struct.unpack_from("<QQ", raw, 4120) == (0, 3)
    assert len(raw) == 4120 + 16


def test_no_end_of_document_token_is_all_ones(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["abcd"])
    prepare(source, tmp_path / "out", "--eos", "none")
    raw = (tmp_path / "out" / "train_000.bin").read_bytes()
    assert raw[36:40] == b"\xff\xff\xff\xff"
    assert struct.unpack_from("<QQ", raw, 16) == (4, 1) and len(raw) == 4096 + 8 + 8


@pytest.mark.parametrize(
    ("offset", "value", "part"),
    [
        (0, b"X", "is not a token shard"),
        (8, b"\x02", "has shard version 2, this program reads 1"),
        (12, b"\x03", "has a damaged header"),
        (16, b"\xff", "has a damaged header"),
        (24, b"\x03", "has 4136 bytes, its header asks for 4144"),
    ],
)
def test_the_reader_refuses_damaged_files(
    shard_file: Path, offset: int, value: bytes, part: str
) -> None:
    raw = bytearray(shard_file.read_bytes())
    raw[offset : offset + len(value)] = value
    shard_file.write_bytes(raw)
    with pytest.raises(DataError, match=part) as caught:
        read_header(shard_file)
    assert str(shard_file) in str(caught.value)


def test_the_reader_refuses_a_file_cut_short(shard_file: Path) -> None:
    whole = shard_file.read_bytes()
    shard_file.write_bytes(whole[:-1])
    with pytest.raises(DataError, match="has 4135 bytes, its header asks for 4136"):
        read_shard(shard_file)
    shard_file.write_bytes(whole[:100])
    with pytest.raises(DataError, match="is not a token shard"):
        read_shard(shard_file)
