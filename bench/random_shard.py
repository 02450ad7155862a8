#!/usr/bin/env python3
"""Writes a token shard of uniformly random ids: what a benchmark of training reads.

    python3 bench/random_shard.py train_000.bin 67108865 --vocab-size 50257

One document, the same ids for the same arguments. Needs numpy alone.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from ingot_data.shards import HEADER_BYTES, Header, ShardMeta, align8  # noqa: E402


def write(path: Path, tokens: int, vocab_size: int) -> None:
    meta = ShardMeta(vocab_size, eos_id=vocab_size - 1, tokenizer_sha256=bytes(32))
    # The last id is the separator, which would begin new documents.
    ids = np.random.default_rng(0).integers(0, vocab_size - 1, tokens, dtype=meta.dtype)
    index_offset = align8(HEADER_BYTES + ids.nbytes)
    header = Header(
        token_bytes=meta.token_bytes, num_tokens=tokens, num_documents=1, vocab_size=vocab_size,
        eos_id=meta.eos_id, split=0, shard_index=0, tokens_offset=HEADER_BYTES,
        index_offset=index_offset, tokenizer_sha256=meta.tokenizer_sha256)
    with open(path, "wb") as file:
        file.write(header.to_bytes())
        file.write(ids.tobytes())
        file.write(bytes(index_offset - HEADER_BYTES - ids.nbytes))
        file.write(bytes(8))  # the only document starts at token 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("tokens", type=int)
    parser.add_argument("--vocab-size", type=int, default=50257)
    arguments = parser.parse_args()
    write(arguments.path, arguments.tokens, arguments.vocab_size)


if __name__ == "__main__":
    main()
