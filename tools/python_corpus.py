#!/usr/bin/env python3
"""Collects the Python standard library's sources as a training corpus and trains a tokenizer.

Writes documents.jsonl (one document a file, {"text": ..., "path": ...}, sorted by path),
tokenizer.json (byte-level BPE trained on it), tokenizer_config.json and corpus.json (what was
taken). The same interpreter files give the same bytes on every run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

if sys.version_info < (3, 11):
    sys.exit(f"python_corpus: Python {sys.version.split()[0]} is too old, 3.11 or newer is needed")

try:
    import tokenizers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
except ModuleNotFoundError as error:
    sys.exit(
        f"python_corpus: the Python package {error.name} is not installed; run: "
        ".venv/bin/pip install -r tools/requirements.txt"
    )

from ingot_data.errors import DataError, io_errors
from ingot_data.files import read_bytes, sha256_of_bytes, to_json_bytes, write_atomically

END_OF_TEXT = "<|endoftext|>"

# Folders that are not the standard library itself, or that exist only where optional packages
# are installed: leaving them out makes the corpus of a stock and of a full installation alike.
SKIPPED_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test", "idlelib",
     "tkinter", "turtledemo", "ensurepip"}
)

MIN_CORPUS_BYTES = 4_000_000


@dataclass
class Corpus:
    """The collected sources, and how many files were left out and why."""

    library: Path
    version: str
    documents: list[tuple[str, str]] = field(default_factory=list)  # (relative path, text)
    not_utf8: list[str] = field(default_factory=list)
    empty: int = 0

    @property
    def num_bytes(self) -> int:
        return sum(len(text.encode("utf-8")) for _, text in self.documents)

    def to_jsonl(self) -> bytes:
        lines = [
            json.dumps({"text": text, "path": path}, ensure_ascii=False)
            for path, text in self.documents
        ]
        return ("\n".join(lines) + "\n").encode("utf-8")


def find_library(python: str) -> tuple[Path, str]:
    """Asks the interpreter `python` for its standard library folder and its version."""
    question = (
        "import platform, sysconfig;"
        "print(sysconfig.get_paths()['stdlib']); print(platform.python_version())"
    )
    try:
        answer = subprocess.run(
            [python, "-I", "-c", question], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise DataError(
            f"cannot ask {python} for its standard library: {error}; "
            "give another interpreter with --python"
        ) from error
    folder, version = answer.stdout.splitlines()
    return Path(folder), version


def is_source(path: Path, library: Path) -> bool:
    """True for the library's own .py files: no links out of it, no build records."""
    if path.suffix != ".py" or path.is_symlink() or not path.is_file():
        return False
    parts = path.relative_to(library).parts
    if SKIPPED_FOLDERS.intersection(parts[:-1]):
        return False
    return not any(part.startswith(("config-", "_sysconfigdata")) for part in parts)


def collect(library: Path, version: str) -> Corpus:
    """Reads every source file of `library` in the order of its relative path."""
    corpus = Corpus(library, version)
    files = [path for path in library.rglob("*.py") if is_source(path, library)]
    for path in sorted(files, key=lambda file: file.relative_to(library).as_posix()):
        name = path.relative_to(library).as_posix()
        try:
            text = read_bytes(path).decode("utf-8")
        except UnicodeDecodeError:
            corpus.not_utf8.append(name)
            continue
        if text.strip():
            corpus.documents.append((name, text))
        else:
            corpus.empty += 1
    return corpus


def train_tokenizer(texts: list[str], vocab_size: int) -> bytes:
    """Trains a byte-level BPE of exactly `vocab_size` entries, the end-of-text token included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=sys.stderr.isatty(),
    )
    tokenizer.train_from_iterator(texts, trainer, length=len(texts))
    if tokenizer.get_vocab_size() != vocab_size:
        raise DataError(
            f"the tokenizer got {tokenizer.get_vocab_size()} entries instead of {vocab_size}: "
            "the corpus is too small for that; give a smaller --vocab-size"
        )
    return (tokenizer.to_str(pretty=True) + "\n").encode("utf-8")


def tokenizer_config() -> bytes:
    """What Hugging Face transformers needs beside tokenizer.json to load it by folder."""
    return to_json_bytes(
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END_OF_TEXT,
            "clean_up_tokenization_spaces": False,
        }
    )


def is_up_to_date(out: Path, record: bytes) -> bool:
    """True when an earlier run wrote the same record and its files are still there."""
    names = ("documents.jsonl", "tokenizer.json", "tokenizer_config.json")
    try:
        if (out / "corpus.json").read_bytes() != record:
            return False
    except OSError:
        return False
    expected = json.loads(record)["documents_sha256"]
    return all((out / name).is_file() for name in names) and (
        sha256_of_bytes((out / "documents.jsonl").read_bytes()) == expected
    )


def build(out: Path, python: str, vocab_size: int) -> None:
    """Collects, checks, trains and writes; prints what was taken and where it is."""
    library, version = find_library(python)
    corpus = collect(library, version)
    if corpus.num_bytes < MIN_CORPUS_BYTES:
        raise DataError(
            f"the standard library of {python} at {library} holds {corpus.num_bytes} bytes of "
            f"source text, at least {MIN_CORPUS_BYTES} are needed; install the full library "
            "(Debian: apt-get install python3 libpython3-stdlib) or give --python"
        )
    jsonl = corpus.to_jsonl()
    record = to_json_bytes(
        {
            "python": version,
            "library": str(library),
            "documents": len(corpus.documents),
            "text_bytes": corpus.num_bytes,
            "skipped_empty": corpus.empty,
            "skipped_not_utf8": corpus.not_utf8,
            "skipped_folders": sorted(SKIPPED_FOLDERS),
            "documents_sha256": sha256_of_bytes(jsonl),
            "vocab_size": vocab_size,
            "tokenizers": tokenizers.__version__,
        }
    )
    print(f"corpus     {library} (Python {version}): {len(corpus.documents)} files, "
          f"{corpus.num_bytes} bytes of text")
    print(f"left out   {corpus.empty} empty files, {len(corpus.not_utf8)} files that are not "
          f"UTF-8, folders {', '.join(sorted(SKIPPED_FOLDERS))}")
    if is_up_to_date(out, record):
        print(f"unchanged  {out}")
        return
    with io_errors("create", out):
        out.mkdir(parents=True, exist_ok=True)
        (out / "corpus.json").unlink(missing_ok=True)
    tokenizer = train_tokenizer([text for _, text in corpus.documents], vocab_size)
    write_atomically(out / "documents.jsonl", jsonl)
    write_atomically(out / "tokenizer.json", tokenizer)
    write_atomically(out / "tokenizer_config.json", tokenizer_config())
    write_atomically(out / "corpus.json", record)
    print(f"documents  {out / 'documents.jsonl'} ({len(jsonl)} bytes)")
    print(f"tokenizer  {out / 'tokenizer.json'} (byte-level BPE, {vocab_size} entries)")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Collect the Python standard library as a corpus and train a tokenizer on it.",
        allow_abbrev=False,
    )
    parser.add_argument("--out", type=Path, default=Path("datasets/python-stdlib"),
                        help="folder for the corpus (default %(default)s)")
    parser.add_argument("--python", default="/usr/bin/python3",
                        help="interpreter whose library is taken (default %(default)s)")
    parser.add_argument("--vocab-size", type=int, default=4096,
                        help="entries of the tokenizer (default %(default)s)")
    options = parser.parse_args(arguments)
    try:
        if options.vocab_size < 257:
            raise DataError(
                f"--vocab-size = {options.vocab_size}, at least 257 are needed "
                f"(256 bytes and {END_OF_TEXT})"
            )
        build(options.out, options.python, options.vocab_size)
    except DataError as error:
        print(f"python_corpus: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
