"""Permutations of 0 … n - 1 that are computed, not stored: a Feistel network with cycle walking.

The network permutes 0 … 2^b - 1, the next power of two; an image outside 0 … n - 1 is sent through again until it
is inside, which keeps it a permutation. Constant memory, any image or inverse image by itself, many at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.interface import Indices

ROUNDS = 8  # even; of each half, four: enough that no test of the orders finds a pattern
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

Words = NDArray[np.uint64]


def mix(words: Words) -> Words:
    """The finalizer of SplitMix64: every bit of the input moves every bit of the output."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def round_keys(key: int, streams: Indices) -> Words:
    """Keys of the rounds for each stream, shape (ROUNDS, len(streams)): the SplitMix64 sequence of (key, stream)."""
    seeds = mix(np.uint64(key) ^ mix(streams.astype(np.uint64) * np.uint64(_GOLDEN)))
    steps = np.arange(1, ROUNDS + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    return mix(seeds[np.newaxis, :] + steps[:, np.newaxis])


@dataclass(frozen=True, slots=True)
class Permutation:
    """Of 0 … size - 1. `keys` has one column, or one for each number that is asked about."""

    size: int
    keys: Words

    def at(self, numbers: Indices) -> Indices:
        """The image of each number."""
        return self._walk(numbers, range(ROUNDS))

    def inverse(self, images: Indices) -> Indices:
        """The number whose image it is, for each image."""
        return self._walk(images, range(ROUNDS - 1, -1, -1))

    def _walk(self, numbers: Indices, rounds: range) -> Indices:
        keys = self.keys
        words = self._network(numbers.astype(np.uint64), keys, rounds)
        outside = np.flatnonzero(words >= np.uint64(self.size))
        while len(outside):
            theirs = keys if keys.shape[1] == 1 else keys[:, outside]
            walked = self._network(words[outside], theirs, rounds)
            words[outside] = walked
            outside = outside[walked >= np.uint64(self.size)]
        return words.astype(np.int64)

    def _network(self, words: Words, keys: Words, rounds: range) -> Words:
        bits = (self.size - 1).bit_length()
        low_bits = np.uint64((bits + 1) // 2)
        low = words & np.uint64((1 << int(low_bits)) - 1)
        high = words >> low_bits
        high_mask = np.uint64((1 << (bits - int(low_bits))) - 1)
        low_mask = np.uint64((1 << int(low_bits)) - 1)
        for number in rounds:
            if number % 2 == 0:
                high ^= _scramble(low, keys[number]) & high_mask
            else:
                low ^= _scramble(high, keys[number]) & low_mask
        return (high << low_bits) | low


def _scramble(half: Words, key: Words) -> Words:
    # Two multiplications are enough: the network repeats this eight times. The upper half holds the good bits.
    words = (half ^ key) * _FIRST
    words ^= words >> np.uint64(32)
    words *= _SECOND
    words >>= np.uint64(32)
    return words
