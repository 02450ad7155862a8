"""Runs prepare_data.py as a user does and reads back what it wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ingot_data.shards import Shard, read_shard

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "cases"
NO_SPLIT = ["--val-fraction", "0", "--test-fraction", "0", "--no-ngrams"]


def run(
    inputs: list[Path] | Path, out: Path, *arguments: str, tokenizer: str | Path = "bytes",
    preexec: Any = None,
) -> subprocess.CompletedProcess[str]:
    """One run of the program with one process, unless the arguments say otherwise."""
    files = inputs if isinstance(inputs, list) else [inputs]
    command = [sys.executable, ROOT / "tools" / "prepare_data.py", "--jobs", "1", "--input",
               *files, "--tokenizer", tokenizer, "--out", out, *arguments]
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, preexec_fn=preexec
    )


def prepare(inputs: list[Path] | Path, out: Path, *arguments: str, **keywords: Any) -> str:
    """A run that must succeed, all documents in the training split; returns what it printed."""
    result = run(inputs, out, *NO_SPLIT, *arguments, **keywords)
    assert result.returncode == 0, result.stderr
    return result.stdout


def refuse(inputs: list[Path] | Path, out: Path, *arguments: str, **keywords: Any) -> str:
    """A run that must fail with one readable line and leave nothing behind."""
    before = sorted(out.parent.iterdir())
    result = run(inputs, out, *NO_SPLIT, *arguments, **keywords)
    assert result.returncode == 1, (result.returncode, result.stdout, result.stderr)
    assert result.stderr.startswith("prepare_data: ") and result.stderr.count("\n") == 1
    assert sorted(out.parent.iterdir()) == before
    return result.stderr


def shards(out: Path, split: str = "train") -> list[Shard]:
    return [read_shard(path) for path in sorted(out.glob(f"{split}_*.bin"))]


def documents(out: Path, split: str = "train") -> list[list[int]]:
    """Ids of the documents of a split, end-of-document tokens included; none may be cut."""
    return [ids.tolist() for shard in shards(out, split) for ids in shard.documents()]


def texts(out: Path) -> list[bytes]:
    """The training documents of a `bytes` data set, each checked to end with token 256."""
    result = []
    for ids in documents(out):
        assert ids[-1] == 256 and 256 not in ids[:-1]
        result.append(bytes(ids[:-1]))
    return result


def dataset(out: Path) -> dict[str, Any]:
    return json.loads((out / "dataset.json").read_text(encoding="utf-8"))


def write_jsonl(path: Path, documents_to_write: list[str]) -> Path:
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in documents_to_write]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
