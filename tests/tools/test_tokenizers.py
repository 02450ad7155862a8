"""Tokenizers: the library does the work, and its files and sizes reach the shards unharmed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ingot_data.errors import DataError
from ingot_data.shards import ShardMeta
from ingot_data.tokenizer import (
    EOS_NAMES, LibraryEncoder, choose_eos, load_library_tokenizer, load_tokenizer,
)
from prepared import CASES, documents, prepare, refuse, shards, write_jsonl
from tokenizers import Tokenizer

SPECIALS = CASES / "B14_tok_vocab_size" / "specials.json"


def library_cases() -> list[tuple[Path, str, list[int]]]:
    """Every (tokenizer, text, ids) of the B01..B11 cases."""
    found = []
    for prefix in ("B01", "B02", "B04", "B05", "B07", "B08", "B11"):
        (folder,) = CASES.glob(prefix + "_*")
        for listing in sorted(folder.glob("expected*.json")):
            for case in json.loads(listing.read_text(encoding="utf-8"))["cases"]:
                if isinstance(case.get("text"), str):
                    found.append((folder / case["file"], case["text"], case["ids"]))
    return found


def test_b01_to_b11_ids_are_those_of_the_library() -> None:
    cases = library_cases()
    assert len(cases) > 100
    for file, text, ids in cases:
        tokenizer = load_library_tokenizer(file.read_bytes(), str(file))
        encoder = LibraryEncoder(tokenizer, np.dtype("<u4"), parse_special=True)
        assert encoder.encode(text, text.encode()).tolist() == ids, (file, text)


def test_b02_an_ambiguous_merge_is_refused_and_named(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["ab ab"])
    (folder,) = CASES.glob("B02_*")
    message = refuse(source, tmp_path / "out", "--eos", "none",
                     tokenizer=folder / "strings_ambiguous.json")
    merges = json.loads((folder / "strings_ambiguous.json").read_text())["model"]["merges"]
    bad = next(merge for merge in merges if merge.count(" ") != 1)
    assert "cannot be loaded" in message and f"the merge {bad!r}" in message
    prepare(source, tmp_path / "out", "--eos", "none", tokenizer=folder / "pairs.json")
    assert documents(tmp_path / "out") == [[5, 0, 1]]


def test_b14_vocabulary_size_is_the_highest_id_plus_one(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["ab<|im_end|>"])
    prepare(source, tmp_path / "out", "--parse-special", tokenizer=SPECIALS)
    (shard,) = shards(tmp_path / "out")
    assert shard.header.vocab_size == 283 and 282 in shard.tokens
    assert len(json.loads(SPECIALS.read_text())["model"]["vocab"]) == 280


def words(path: Path, size: int) -> Path:
    """A tokenizer with one word per id: "w0" .. , the end-of-document token being id 0."""
    vocab = {"</s>": 0} | {f"w{i}": i for i in range(1, size)}
    content = {
        "version": "1.0", "truncation": {"max_length": 2, "stride": 0, "direction": "Right",
                                         "strategy": "LongestFirst"},
        "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w1"},
    }
    path.write_text(json.dumps(content), encoding="ascii")
    return path


@pytest.mark.parametrize(
    ("size", "token_bytes"), [(65535, 2), (65536, 2), (65537, 4), (151936, 4)]
)
def test_b23_ids_are_never_cut_to_16_bits(tmp_path: Path, size: int, token_bytes: int) -> None:
    ids = [1, size - 1, 65534, 2] + ([70000, 65535, 65536, 151643] if size > 70000 else [])
    source = write_jsonl(tmp_path / "in.jsonl", [" ".join(f"w{i}" for i in ids)])
    prepare(source, tmp_path / "out", tokenizer=words(tmp_path / "t.json", size))
    (shard,) = shards(tmp_path / "out")
    assert shard.header.token_bytes == token_bytes and shard.header.vocab_size == size
    assert shard.tokens.tolist() == ids + [0]
    assert shard.header.index_offset % 8 == 0
    assert ShardMeta(size, 0, bytes(32)).token_bytes == token_bytes


def test_truncation_in_the_file_is_not_applied_and_unknown_words_are_counted(
    tmp_path: Path,
) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["w2 w3 w4 w5", "what w2 else"])
    printed = prepare(source, tmp_path / "out", tokenizer=words(tmp_path / "t.json", 10))
    assert documents(tmp_path / "out") == [[2, 3, 4, 5, 0], [1, 2, 1, 0]]
    assert "2 unknown tokens in 1 documents" in printed


def test_tokenizer_files_travel_with_the_shards(tmp_path: Path) -> None:
    folder = tmp_path / "tok"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(SPECIALS.read_bytes())
    (folder / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>"}')
    (folder / "merges.txt").write_text("#version\n")
    (folder / "notes.txt").write_text("not a tokenizer file")
    source = write_jsonl(tmp_path / "in.jsonl", ["ab"])
    out = tmp_path / "out"
    prepare(source, out, tokenizer=folder)
    assert sorted(path.name for path in out.iterdir()) == [
        "dataset.json", "merges.txt", "special_tokens_map.json", "tokenizer.json",
        "tokenizer_config.json", "train_000.bin",
    ]
    assert (out / "tokenizer.json").read_bytes() == SPECIALS.read_bytes()
    config = json.loads((out / "tokenizer_config.json").read_text())
    assert config["eos_token"] == "<|endoftext|>"
    (shard,) = shards(out)
    assert shard.header.tokenizer_sha256.hex() == json.loads(
        (out / "dataset.json").read_text())["tokenizer"]["sha256"]


def test_the_bytes_tokenizer_loads_in_the_library_to_the_same_ids(tmp_path: Path) -> None:
    text = "".join(map(chr, range(1, 0x250))) + " a  b\n\n\tc \u4f60\u597d \U0001f600\x00 end  "
    source = write_jsonl(tmp_path / "in.jsonl", [text])
    prepare(source, tmp_path / "out")
    loaded = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert documents(tmp_path / "out") == [[*text.encode(), 256]]
    assert loaded.encode(text).ids == list(text.encode())
    assert loaded.decode(list(text.encode())) == text
    assert loaded.encode("a<|endoftext|>b").ids == [97, 256, 98]
    assert loaded.get_vocab_size() == 257
    assert {loaded.id_to_token(i) for i in range(257)} == set(loaded.get_vocab())


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"{", "cannot be loaded"),
        (b"\xff", "is not UTF-8 text"),
        (b'{"version": "1.0", "model": {"type": "Oracle"}}', "cannot be loaded"),
    ],
)
def test_a_damaged_tokenizer_is_one_readable_message(
    tmp_path: Path, content: bytes, part: str
) -> None:
    (tmp_path / "t.json").write_bytes(content)
    source = write_jsonl(tmp_path / "in.jsonl", ["ab"])
    message = refuse(source, tmp_path / "out", tokenizer=tmp_path / "t.json")
    assert part in message and "t.json" in message


@pytest.mark.parametrize(
    ("special", "configured", "answer"),
    [
        (["<|endoftext|>"], None, "<|endoftext|>"),
        (["</s>", "<s>"], None, "</s>"),
        (["<|endoftext|>", "</s>"], None, None),
        (["<|endoftext|>", "</s>"], "</s>", "</s>"),
        (["<|endoftext|>", "<|im_end|>"], "<|im_end|>", None),
        (["<|stop|>"], "<|stop|>", "<|stop|>"),
        (["<|stop|>"], "<|absent|>", None),
    ],
)
def test_the_end_of_document_token_is_found_or_asked_for(
    special: list[str], configured: str | None, answer: str | None
) -> None:
    table = {token: i for i, token in enumerate(special)}
    vocab = table | {"a": 90, "<eos>": 91}
    if answer is not None:
        assert choose_eos("auto", "t.json", vocab, table, configured) == answer
        return
    if not any(token in EOS_NAMES for token in special):
        del vocab["<eos>"]
    with pytest.raises(DataError, match="--eos TOKEN") as caught:
        choose_eos("auto", "t.json", vocab, table, configured)
    assert "t.json" in str(caught.value)


def test_a_token_of_the_vocabulary_that_is_not_marked_special_is_found_last() -> None:
    assert choose_eos("auto", "t.json", {"<eos>": 3, "a": 0}, {}, None) == "<eos>"


def test_a_damaged_tokenizer_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(SPECIALS.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text("[")
    with pytest.raises(DataError, match="tokenizer_config.json beside the tokenizer is damaged"):
        load_tokenizer(str(tmp_path), "auto")
