"""python_corpus.py on small libraries made here, and on the real one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import python_corpus
import pytest
from ingot_data.errors import DataError
from prepared import ROOT, dataset, documents, run
from tokenizers import Tokenizer


def run_corpus(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "python_corpus.py"), "--out", str(out)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True)


def make_library(folder: Path) -> Path:
    files = {
        "b.py": b"x = 1\n", "a/__init__.py": b"", "a/z.py": "s = '\u00e9'\n".encode(),
        "latin.py": b"# caf\xe9\n", "test/test_a.py": b"t\n", "a/tests/test_z.py": b"t\n",
        "site-packages/p.py": b"p\n", "dist-packages/q.py": b"q\n", "notes.txt": b"n\n",
        "_sysconfigdata__x.py": b"v\n", "config-3-x/c.py": b"c\n",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "link.py").symlink_to("b.py")
    return folder


def test_only_the_librarys_own_utf8_sources_are_taken_sorted(tmp_path: Path) -> None:
    corpus = python_corpus.collect(make_library(tmp_path), "3.11.2")
    assert corpus.documents == [("a/z.py", "s = '\u00e9'\n"), ("b.py", "x = 1\n")]
    assert corpus.not_utf8 == ["latin.py"] and corpus.empty == 1
    assert corpus.num_bytes == 15
    lines = corpus.to_jsonl().decode().splitlines()
    assert [json.loads(line)["path"] for line in lines] == ["a/z.py", "b.py"]


def test_a_small_library_and_a_wrong_interpreter_are_refused(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\necho {make_library(tmp_path / 'lib')}\necho 3.11.2\n")
    fake.chmod(0o755)
    result = run_corpus(tmp_path / "out", "--python", str(fake))
    assert result.returncode == 1 and not (tmp_path / "out").exists()
    assert "holds 15 bytes of source text, at least 4000000 are needed" in result.stderr
    result = run_corpus(tmp_path / "out", "--python", "/gone/python3")
    assert result.returncode == 1 and "cannot ask /gone/python3" in result.stderr
    result = run_corpus(tmp_path / "out", "--vocab-size", "100")
    assert result.returncode == 1 and "--vocab-size = 100, at least 257" in result.stderr


def test_a_tokenizer_that_cannot_reach_its_size_is_refused() -> None:
    with pytest.raises(DataError, match="instead of 4096"):
        python_corpus.train_tokenizer(["a b c"], 4096)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpus") / "python-stdlib"
    result = run_corpus(out)
    if result.returncode != 0 and "bytes of source text" in result.stderr:
        pytest.skip(result.stderr)
    assert result.returncode == 0, result.stderr
    assert "bytes of text" in result.stdout and str(out / "documents.jsonl") in result.stdout
    return out


def test_the_corpus_is_the_same_on_every_run(corpus: Path, tmp_path: Path) -> None:
    assert "unchanged" in run_corpus(corpus).stdout
    shutil.copytree(corpus, tmp_path / "again")
    (tmp_path / "again" / "tokenizer.json").unlink()
    assert run_corpus(tmp_path / "again").returncode == 0
    for path in corpus.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_the_tokenizer_has_4096_entries_and_loses_nothing(corpus: Path) -> None:
    tokenizer = Tokenizer.from_file(str(corpus / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 4096
    assert tokenizer.token_to_id("<|endoftext|>") is not None
    text = "def f(x):\n\treturn '\u00e9\U0001f600'  # \x00 end\n"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_corpus_becomes_shards_with_sensible_ngram_losses(
    corpus: Path, tmp_path: Path
) -> None:
    result = run(corpus / "documents.jsonl", tmp_path / "out", "--jobs", "2",
                 tokenizer=corpus / "tokenizer.json")
    assert result.returncode == 0, result.stderr
    found = dataset(tmp_path / "out")
    assert found["vocab_size"] == 4096 and found["token_bytes"] == 2
    total = sum(found["splits"][name]["tokens"] for name in ("train", "val", "test"))
    assert 1_000_000 < total < 6_000_000
    losses = found["ngram_losses"]
    assert 6 < losses["unigram"] < 7.5 and losses["trigram"] < losses["bigram"] - 0.1
    assert losses["bigram"] < losses["unigram"] - 1
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    with open(corpus / "documents.jsonl", encoding="utf-8") as lines:
        known = {json.loads(line)["text"] for line in lines}
    assert all(tokenizer.decode(ids[:-1]) in known for ids in documents(tmp_path / "out", "val"))
