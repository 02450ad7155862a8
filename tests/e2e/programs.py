"""A folder as a user has it (shards, a run.json, an architecture) and programs started in it."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from ingot_data.tokenizer import bytes_tokenizer_json  # noqa: E402

CASES = ROOT / "tests" / "cases"
BINARIES = Path(os.environ.get("INGOT_BINARY_DIR", ROOT / "build" / "cpu"))
VOCAB, EOS, CONTEXT = 257, 256, 32
SHARD_HEADER = struct.Struct("<8sIIQQIIIIQQ32s")
SPLITS = {"train": 0, "val": 1, "test": 2}

# Not a multiple of 128, so that padding rows would show in what is exported.
ARCHITECTURE = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
    "vocab_size": VOCAB, "n_positions": CONTEXT, "n_embd": 32, "n_layer": 2, "n_head": 2,
    "n_inner": None, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
}
RUN = {
    "model": {"hf": "architecture", "init": "scratch"},
    "data": {"train": "shards/train_*.bin", "val": "shards/val_*.bin",
             "test": "shards/test_*.bin", "workers": 1},
    "train": {"device": "cpu", "micro_batch": 4, "global_batch": 8, "steps": 4, "threads": 1},
    "optimizer": {"lr": 0.003},
    "sample": {"tokens": 8, "temperature": 0},
    "log": {"dir": "run"},
}


def write_shard(
    path: Path, tokens: np.ndarray, tokenizer: bytes = b"", vocab_size: int = VOCAB
) -> None:
    """A shard of docs/formats.md with 16-bit ids; a document ends behind every EOS."""
    ends = np.flatnonzero(tokens == EOS) + 1
    starts = np.concatenate([[0], ends[ends < len(tokens)]]).astype("<u8")
    raw = tokens.astype("<u2").tobytes()
    raw += bytes(-len(raw) % 8)
    digest = hashlib.sha256(tokenizer).digest() if tokenizer else bytes(32)
    header = SHARD_HEADER.pack(
        b"INGOTTOK", 1, 2, len(tokens), len(starts), vocab_size, EOS,
        SPLITS[path.name.split("_")[0]], int(path.stem.split("_")[1]), 4096, 4096 + len(raw),
        digest)
    path.write_bytes(header.ljust(4096, b"\0") + raw + starts.tobytes())


def some_tokens(count: int, seed: int) -> np.ndarray:
    """Documents of 50 bytes, in which a byte is one of the few that may follow the byte before."""
    draws = np.random.default_rng(seed).integers(1, 4, count)
    tokens = 97 + np.cumsum(draws) % 26
    tokens[50::51] = EOS
    return tokens


class Workplace:
    """A folder with shards of 6000, 400 and 300 tokens, in which programs are started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = ""
        (folder / "shards").mkdir()
        (folder / "architecture").mkdir()
        tokenizer = bytes_tokenizer_json()
        (folder / "shards" / "tokenizer.json").write_bytes(tokenizer)
        for seed, (split, count) in enumerate([("train", 6000), ("val", 400), ("test", 300)]):
            write_shard(self.shard(split), some_tokens(count, seed), tokenizer)
        (folder / "architecture" / "config.json").write_text(json.dumps(ARCHITECTURE))
        (folder / "run.json").write_text(json.dumps(RUN))

    def shard(self, split: str) -> Path:
        return self.folder / "shards" / f"{split}_000.bin"

    def command(self, program: str, *arguments: str | Path) -> list[str]:
        return [str(BINARIES / program), *map(str, arguments)]

    def start(self, *arguments: str | Path, **keywords: Any) -> subprocess.Popen[str]:
        """A training that goes on beside the test."""
        return subprocess.Popen(
            self.command("train_gpt", *arguments), cwd=self.folder, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, **keywords)

    def run(self, program: str, *arguments: str | Path, environment: dict[str, str] | None = None,
            **keywords: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(program, *arguments), cwd=self.folder, capture_output=True, text=True,
            timeout=120, env={**os.environ, **(environment or {})}, **keywords)

    def train(self, *arguments: str | Path, **keywords: Any) -> subprocess.CompletedProcess[str]:
        return self.run("train_gpt", *arguments, **keywords)

    def records(self, log_dir: str = "run") -> list[dict[str, Any]]:
        """The complete lines of metrics.jsonl."""
        path = self.folder / log_dir / "metrics.jsonl"
        text = path.read_bytes() if path.exists() else b""
        return [json.loads(line) for line in text.split(b"\n")[:-1]]

    def steps(self, log_dir: str = "run") -> list[dict[str, Any]]:
        return [record for record in self.records(log_dir) if "loss" in record]

    def wait_for_steps(self, count: int, process: subprocess.Popen[str]) -> None:
        wait_until(lambda: len(self.steps()) >= count or process.poll() is not None)
        assert process.poll() is None, process.communicate()


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"nothing happened within {seconds} s"
        time.sleep(0.01)
