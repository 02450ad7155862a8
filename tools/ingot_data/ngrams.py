"""Validation losses of unigram, bigram and trigram models: bars that a trained model must pass.

Witten-Bell interpolation. With c the training counts and T(h) the number of different tokens
seen after the context h,

    P1(w)       = (c(w) + T * 1/V) / (N + T)                       T: different tokens, N: all
    Pn(w | h)   = (c(h w) + T(h) * Pn-1(w | h')) / (c(h) + T(h))   h': h without its first token

and Pn = Pn-1 where h was never seen. Nothing is tuned on the validation data. The tokens are
one stream, end-of-document tokens included as context and as target, as in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot_data.shards import read_shard

# Bound the memory to about 1 GiB; larger sets are represented by their first tokens.
MAX_TRAIN_TOKENS = 1 << 25
MAX_VAL_TOKENS = 1 << 22
MAX_VOCAB = 1 << 21  # Three ids fit into 63 bits.


@dataclass(frozen=True)
class NgramLosses:
    """Mean negative log-likelihoods in nats per token, and how much data they stand on."""

    unigram: float
    bigram: float
    trigram: float
    train_tokens: int
    val_tokens: int


def first_tokens(paths: Sequence[Path], limit: int) -> NDArray[np.int64]:
    """The first `limit` tokens of the stream that the shards make."""
    parts: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    room = limit
    for path in paths:
        part = read_shard(path).tokens[:room].astype(np.int64)
        parts.append(part)
        room -= len(part)
        if room == 0:
            break
    return np.concatenate(parts)


class _Table:
    """Counts of the n-grams of the training stream, keyed by context * V + token."""

    def __init__(self, keys: NDArray[np.int64], vocab_size: int) -> None:
        self._keys, self._counts = np.unique(keys, return_counts=True)
        contexts = self._keys // vocab_size
        starts = np.flatnonzero(np.diff(contexts, prepend=-1))
        self._contexts = contexts[starts]
        self._totals = np.add.reduceat(self._counts, starts) if len(starts) else self._counts
        self._types = np.diff(starts, append=len(contexts))

    def interpolate(
        self, contexts: NDArray[np.int64], keys: NDArray[np.int64], lower: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Pn of each key, given Pn-1 of the same positions."""
        counts = _look_up(self._keys, self._counts, keys)
        totals = _look_up(self._contexts, self._totals, contexts)
        types = _look_up(self._contexts, self._types, contexts)
        return np.where(totals > 0, (counts + types * lower) / np.maximum(totals + types, 1), lower)


def _look_up(
    keys: NDArray[np.int64], values: NDArray[np.int64], wanted: NDArray[np.int64]
) -> NDArray[np.int64]:
    """values[i] where keys[i] == wanted, else 0. `keys` is sorted."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)


def losses(
    train: NDArray[np.int64], val: NDArray[np.int64], vocab_size: int
) -> NgramLosses | None:
    """None where there is too little data: every target needs two tokens before it."""
    if len(train) < 3 or len(val) < 3 or vocab_size > MAX_VOCAB:
        return None
    target, previous, before = val[2:], val[1:-1], val[:-2]
    counts = np.bincount(train, minlength=vocab_size)
    num_types = np.count_nonzero(counts)
    uniform = num_types / vocab_size
    unigram = (counts[target] + uniform) / (len(train) + num_types)
    table = _Table(train[:-1] * vocab_size + train[1:], vocab_size)
    bigram = table.interpolate(previous, previous * vocab_size + target, unigram)
    pairs = train[:-2] * vocab_size + train[1:-1]
    table = _Table(pairs * vocab_size + train[2:], vocab_size)
    pair = before * vocab_size + previous
    trigram = table.interpolate(pair, pair * vocab_size + target, bigram)
    means = [float(-np.log(p).mean()) for p in (unigram, bigram, trigram)]
    return NgramLosses(means[0], means[1], means[2], len(train), len(target))


def losses_of_shards(
    train: Sequence[Path], val: Sequence[Path], vocab_size: int
) -> NgramLosses | None:
    return losses(
        first_tokens(train, MAX_TRAIN_TOKENS), first_tokens(val, MAX_VAL_TOKENS), vocab_size
    )
