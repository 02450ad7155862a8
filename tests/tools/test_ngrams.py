"""N-gram losses against plain loops over dictionaries."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from ingot_data import ngrams
from prepared import dataset, documents, run, write_jsonl


def witten_bell(train: list[int], val: list[int], vocab_size: int, order: int) -> float:
    """Mean loss by the formula in the module, one position at a time."""
    counts = [Counter(tuple(train[i : i + n]) for i in range(len(train) - n + 1))
              for n in range(1, order + 1)]

    def probability(history: tuple[int, ...], token: int) -> float:
        if not history:
            types = len(counts[0])
            return (counts[0][(token,)] + types / vocab_size) / (len(train) + types)
        followers = {key: c for key, c in counts[len(history)].items() if key[:-1] == history}
        lower = probability(history[1:], token)
        if not followers:
            return lower
        seen, types = sum(followers.values()), len(followers)
        return (counts[len(history)][(*history, token)] + types * lower) / (seen + types)

    losses = [-math.log(probability(tuple(val[i - order + 1 : i]), val[i]))
              for i in range(2, len(val))]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("vocab_size", [7, 50])
def test_losses_agree_with_the_formula(vocab_size: int) -> None:
    random = np.random.default_rng(5)
    train = (random.integers(0, 7, 300) * random.integers(0, 2, 300)).tolist()
    val = random.integers(0, vocab_size, 80).tolist()
    result = ngrams.losses(np.array(train), np.array(val), vocab_size)
    assert result is not None
    found = (result.unigram, result.bigram, result.trigram)
    wanted = [witten_bell(train, val, vocab_size, order) for order in (1, 2, 3)]
    assert found == pytest.approx(wanted, rel=1e-12)
    assert (result.train_tokens, result.val_tokens) == (300, 78)


def test_probabilities_of_all_tokens_sum_to_one() -> None:
    train, vocab_size = np.array([0, 1, 2, 1, 0, 1, 3, 1, 2, 2, 0]), 6
    for history in ([1, 2], [0, 1], [4, 1], [5, 5]):
        total = sum(
            math.exp(-result.trigram)
            for token in range(vocab_size)
            if (result := ngrams.losses(train, np.array([*history, token]), vocab_size))
        )
        assert total == pytest.approx(1, abs=1e-12)


def test_too_little_data_gives_no_losses() -> None:
    few, many = np.array([1, 2]), np.array([1, 2, 3])
    assert ngrams.losses(few, many, 5) is None and ngrams.losses(many, few, 5) is None
    assert ngrams.losses(many, many, ngrams.MAX_VOCAB + 1) is None


def test_losses_are_printed_and_recorded_over_all_shards(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", [f"the cat {i} sat on {i * i}" for i in range(99)])
    arguments = ("--val-fraction", "0.3", "--shard-tokens", "300")
    result = run(source, tmp_path / "out", *arguments)
    assert result.returncode == 0, result.stderr
    streams = [sum(documents(tmp_path / "out", split), []) for split in ("train", "val")]
    assert len(list((tmp_path / "out").glob("val_*.bin"))) > 1
    recorded = dataset(tmp_path / "out")["ngram_losses"]
    wanted = witten_bell(streams[0], streams[1], 257, 3)
    assert recorded["trigram"] == pytest.approx(wanted, rel=1e-9)
    assert f"trigram {wanted:.4f}" in result.stdout
    result = run(source, tmp_path / "none", "--no-ngrams")
    assert "not computed (--no-ngrams)" in result.stdout
    assert dataset(tmp_path / "none")["ngram_losses"] is None


def test_only_the_first_tokens_are_used_beyond_the_limit(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["abcdefghij", "klmnopqrst", "uvwxyz"])
    assert run(source, tmp_path / "out", "--val-fraction", "0", "--test-fraction", "0",
               "--shard-tokens", "12").returncode == 0
    paths = sorted((tmp_path / "out").glob("train_*.bin"))
    assert len(paths) == 3
    assert bytes(ngrams.first_tokens(paths, 13)[[0, 9, 11, 12]].tolist()) == b"ajkl"
    assert len(ngrams.first_tokens(paths, 10**6)) == 29
