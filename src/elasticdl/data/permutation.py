"""Permutations of 0 … n - 1 that are computed, not stored: a Feistel network with cycle walking.

The network permutes 0 … 2^b - 1, the next power of two; an image outside 0 … n - 1 is sent through again until it
is inside, which keeps it a permutation. Constant memory, any image or inverse image by itself, many at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.interface import Indices

# Over 8 bits and less, fewer rounds than 20 prefer some permutations to others (chi-square over all orders of
# 5 numbers); above, 10 leave nothing to find.
_ROUNDS_OF_SMALL, _ROUNDS_OF_LARGE, _LARGE_BITS = 20, 10, 9
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

Words = NDArray[np.uint64]


def mix(words: Words) -> Words:
    """The finalizer of SplitMix64: every bit of the input moves every bit of the output."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class Permutation:
    """Of 0 … size - 1. `keys` has a row for each round, and one column, or one for each number that is asked about."""

    size: int
    keys: Words

    def chosen(self, streams: Indices) -> Permutation:
        """For each number to be asked about, the permutation of one of the streams."""
        return Permutation(self.size, self.keys[:, streams])

    def at(self, numbers: Indices) -> Indices:
        """The image of each number."""
        return self._walk(numbers, range(len(self.keys)))

    def inverse(self, images: Indices) -> Indices:
        """The number whose image it is, for each image."""
        return self._walk(images, range(len(self.keys) - 1, -1, -1))

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
        bits = _bits(self.size)
        width = (bits + 1) // 2
        low_bits, low_mask = np.uint64(width), np.uint64((1 << width) - 1)
        high_mask = np.uint64((1 << (bits - width)) - 1)
        low, high = words & low_mask, words >> low_bits
        for number in rounds:
            if number % 2 == 0:
                high ^= _scramble(low, keys[number]) & high_mask
            else:
                low ^= _scramble(high, keys[number]) & low_mask
        return (high << low_bits) | low


def keyed(size: int, key: int, streams: Indices) -> Permutation:
    """A permutation for each of `streams`, all of the same size: the SplitMix64 sequence of (key, stream) keys it."""
    rounds = _ROUNDS_OF_LARGE if _bits(size) >= _LARGE_BITS else _ROUNDS_OF_SMALL
    seeds = mix(np.uint64(key) ^ mix(streams.astype(np.uint64) * np.uint64(_GOLDEN)))
    steps = np.arange(1, rounds + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    return Permutation(size, mix(seeds[np.newaxis, :] + steps[:, np.newaxis]))


def _bits(size: int) -> int:
    return (size - 1).bit_length()


def _scramble(half: Words, key: Words) -> Words:
    # Two multiplications are enough: the network repeats this many times. The upper half holds the good bits.
    words = (half ^ key) * _FIRST
    words ^= words >> np.uint64(32)
    words *= _SECOND
    words >>= np.uint64(32)
    return words
