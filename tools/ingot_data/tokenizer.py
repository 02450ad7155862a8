"""Tokenizers: a Hugging Face tokenizer.json or plain bytes, and the files that go with them."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ingot_data.errors import DataError
from ingot_data.files import read_bytes, to_json_bytes

BYTES = "bytes"
BYTES_EOS = "<|endoftext|>"
BYTES_EOS_ID = 256

# Names that mean "a document ends here". Names that end a turn of a chat are not among them.
EOS_NAMES = (
    "<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[EOS]", "<|eos|>", "<EOS>",
    "<|end_of_document|>", "<|endofdocument|>", "<｜end▁of▁sentence｜>",
)

# Files that Hugging Face tools look for beside tokenizer.json.
SIBLINGS = (
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "vocab.txt", "tokenizer.model", "chat_template.jinja",
)


@dataclass(frozen=True)
class TokenizerInfo:
    """Everything about a tokenizer that the shards and their readers need."""

    source: str
    kind: str
    files: tuple[tuple[str, bytes], ...]  # name beside the shards, content
    vocab_size: int
    eos_id: int | None
    eos_text: str | None
    unk_id: int | None
    special_texts: tuple[str, ...]

    @property
    def sha256(self) -> bytes:
        return hashlib.sha256(dict(self.files)["tokenizer.json"]).digest()


class Encoder(Protocol):
    """Turns one document into ids, without the end-of-document token."""

    def encode(self, text: str, data: bytes) -> NDArray[np.unsignedinteger]:
        """`data` is `text` in UTF-8."""


@contextmanager
def _library_errors(what: str) -> Iterator[None]:
    """The library reports through Exception, and its Rust panics derive from BaseException."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, DataError):
        raise
    except BaseException as error:  # noqa: B036 - a Rust panic is no Exception
        raise DataError(f"{what}: {error}") from error


def load_library_tokenizer(content: bytes, name: str) -> Any:
    """Parses a tokenizer.json with the tokenizers library."""
    from tokenizers import Tokenizer

    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"the tokenizer {name} is not UTF-8 text: {error}") from error
    try:
        with _library_errors(f"the tokenizer {name} cannot be loaded"):
            tokenizer = Tokenizer.from_str(text)
    except DataError as error:
        merge = _ambiguous_merge(text)
        if merge is None:
            raise
        raise DataError(f"{error}; the merge {merge!r} does not split into two parts at one "
                        "space: write the merges as pairs") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _ambiguous_merge(text: str) -> str | None:
    """The first merge written as a string that is not two parts around one space."""
    try:
        merges = json.loads(text)["model"]["merges"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(merges, list):
        return None
    return next((m for m in merges if isinstance(m, str) and m.count(" ") != 1), None)


class BytesEncoder:
    """Ids 0..255 are the bytes of the UTF-8 text."""

    def __init__(self, dtype: np.dtype, parse_special: bool) -> None:
        self._dtype = dtype
        self._parse_special = parse_special

    def encode(self, text: str, data: bytes) -> NDArray[np.unsignedinteger]:
        if not self._parse_special:
            return np.frombuffer(data, np.uint8).astype(self._dtype)
        pieces: list[NDArray[np.unsignedinteger]] = []
        for piece in data.split(BYTES_EOS.encode()):
            pieces.append(np.frombuffer(piece, np.uint8).astype(self._dtype))
            pieces.append(np.array([BYTES_EOS_ID], self._dtype))
        return np.concatenate(pieces[:-1])


class LibraryEncoder:
    """Encodes with the tokenizers library, one document at a time and without its template."""

    def __init__(self, tokenizer: Any, dtype: np.dtype, parse_special: bool) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = not parse_special
        self._dtype = dtype

    def encode(self, text: str, data: bytes) -> NDArray[np.unsignedinteger]:
        with _library_errors("the library says"):
            encoded = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return np.array(encoded[0].ids, self._dtype)


def load_tokenizer(name: str, eos: str) -> TokenizerInfo:
    """Loads what --tokenizer names. `eos` is auto, none, or the text of a token."""
    if name == BYTES:
        return _bytes_info(eos)
    path = Path(name)
    if path.is_dir():
        path = path / "tokenizer.json"
    content = read_bytes(path)
    tokenizer = load_library_tokenizer(content, str(path))
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    if not vocab:
        raise DataError(f"the tokenizer {path} has no entries")
    files = {"tokenizer.json": content}
    if path.name == "tokenizer.json":
        # Beside a file of another name, these may belong to another tokenizer.
        files |= {n: read_bytes(path.with_name(n)) for n in SIBLINGS if path.with_name(n).is_file()}
    added = tokenizer.get_added_tokens_decoder()
    special = {token.content: i for i, token in sorted(added.items()) if token.special}
    eos_text = choose_eos(eos, str(path), vocab, special, _configured_eos(files))
    model = json.loads(content)["model"]
    unk = model.get("unk_token")
    if unk is None and isinstance(model.get("unk_id"), int):
        unk = model["vocab"][model["unk_id"]][0]
    if "tokenizer_config.json" not in files:
        files["tokenizer_config.json"] = minimal_config(eos_text)
    return TokenizerInfo(
        source=str(path), kind=str(model.get("type") or "tokenizer"),
        files=tuple(sorted(files.items())), vocab_size=max(vocab.values()) + 1,
        eos_id=None if eos_text is None else vocab[eos_text], eos_text=eos_text,
        unk_id=vocab.get(unk) if unk else None, special_texts=tuple(special),
    )


def _configured_eos(files: dict[str, bytes]) -> str | None:
    """The eos_token that the files beside tokenizer.json name, if any."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if name not in files:
            continue
        try:
            token = json.loads(files[name]).get("eos_token")
        except (ValueError, AttributeError, RecursionError) as error:
            raise DataError(f"{name} beside the tokenizer is damaged: {error}") from error
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            return token
    return None


def choose_eos(
    eos: str, name: str, vocab: dict[str, int], special: dict[str, int], configured: str | None
) -> str | None:
    """The token after every document: as asked for, or the only one that can be meant."""
    if eos == "none":
        return None
    if eos != "auto":
        if eos not in vocab:
            raise DataError(f"--eos = {eos!r} is no token of {name}")
        return eos
    known = [token for token in EOS_NAMES if token in special]
    if configured is not None and configured in vocab:
        if configured in known or not known:
            return configured
        known.append(configured)
    known = known or [token for token in EOS_NAMES if token in vocab]
    if len(known) == 1:
        return known[0]
    if not known:
        raise DataError(
            f"the tokenizer {name} has no end-of-document token by a known name "
            f"({', '.join(EOS_NAMES)}); name it with --eos TOKEN, or give --eos none"
        )
    raise DataError(
        f"the tokenizer {name} has several tokens that could end a document: "
        f"{', '.join(known)}; choose one with --eos TOKEN"
    )


def minimal_config(eos_text: str | None) -> bytes:
    """A tokenizer_config.json with which transformers loads the folder as it is."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if eos_text is not None:
        config["eos_token"] = eos_text
    return to_json_bytes(config | {"clean_up_tokenization_spaces": False})


def _bytes_info(eos: str) -> TokenizerInfo:
    if eos not in ("auto", "none", BYTES_EOS):
        raise DataError(f"--eos = {eos!r}, the bytes tokenizer only knows {BYTES_EOS}")
    eos_text = None if eos == "none" else BYTES_EOS
    return TokenizerInfo(
        source=BYTES, kind=BYTES,
        files=(("tokenizer.json", bytes_tokenizer_json()),
               ("tokenizer_config.json", minimal_config(eos_text))),
        vocab_size=BYTES_EOS_ID + 1, eos_id=None if eos_text is None else BYTES_EOS_ID,
        eos_text=eos_text, unk_id=None, special_texts=(BYTES_EOS,),
    )


def byte_characters() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary.

    Bytes that print as themselves in Latin-1 do so; the others, in order, are the code points
    from 256 on.
    """
    printing = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printing else chr(next(others)) for byte in range(256)]


def bytes_tokenizer_json() -> bytes:
    """A tokenizer.json for the library whose ids are the byte values and 256."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocab = {character: byte for byte, character in enumerate(byte_characters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(BYTES_EOS, special=True, normalized=False)])
    return (tokenizer.to_str(pretty=True) + "\n").encode("utf-8")


@functools.lru_cache(maxsize=1)
def encoder_for(
    kind: str, tokenizer_file: Path, token_bytes: int, parse_special: bool
) -> Encoder:
    """The encoder of a process; loading a large tokenizer for every unit would be slow."""
    dtype = np.dtype("<u2") if token_bytes == 2 else np.dtype("<u4")
    if kind == BYTES:
        return BytesEncoder(dtype, parse_special)
    content = read_bytes(tokenizer_file)
    return LibraryEncoder(load_library_tokenizer(content, str(tokenizer_file)), dtype,
                          parse_special)


@functools.lru_cache(maxsize=1)
def special_pattern(texts: tuple[str, ...]) -> re.Pattern[str] | None:
    """Finds any of the special texts, the longest first."""
    if not texts:
        return None
    ordered = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, ordered)))
