"""The order of an epoch: a function of (seed, epoch) alone, computed in constant memory and read at any position."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.interface import Indices


def iterate_shards(records: int, shard_records: int) -> Iterator[tuple[int, int, int]]:
    """Yields number, first record and past-the-last record of each shard; only the last may be short."""
    for number, start in enumerate(range(0, records, shard_records)):
        yield number, start, min(start + shard_records, records)


def count_shards(records: int, shard_records: int) -> int:
    return -(-records // shard_records)


# For 8 bits and less, fewer than 20 rounds prefer some permutations to others (chi-square over all orders of
# 5 numbers); for more bits 10 rounds show no bias.
_ROUNDS_OF_SMALL, _ROUNDS_OF_LARGE, _LARGE_BITS = 20, 10, 9
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

Words = NDArray[np.uint64]


def splitmix64(words: Words) -> Words:
    """The finalizer of SplitMix64: every bit of the input moves every bit of the output."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class Permutation:
    """A permutation of 0 … size - 1. `keys` has a row for each round, and one column or one for each number."""

    size: int
    keys: Words

    def select_streams(self, streams: Indices) -> Permutation:
        """Returns the permutations of these streams, one for each number to permute."""
        return Permutation(self.size, self.keys[:, streams])

    def apply(self, numbers: Indices) -> Indices:
        """Returns the image of each number."""
        return self._walk(numbers, range(len(self.keys)))

    def apply_inverse(self, images: Indices) -> Indices:
        """Returns the number of each image."""
        return self._walk(images, range(len(self.keys) - 1, -1, -1))

    def _walk(self, numbers: Indices, rounds: range) -> Indices:
        keys = self.keys
        words = self._network(numbers.astype(np.uint64), keys, rounds)
        outside = np.flatnonzero(words >= np.uint64(self.size))
        while len(outside):
            outside_keys = keys if keys.shape[1] == 1 else keys[:, outside]
            walked = self._network(words[outside], outside_keys, rounds)
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


def keyed_permutations(size: int, key: int, streams: Indices) -> Permutation:
    """Returns a permutation for each of `streams`, keyed by the SplitMix64 sequence of (key, stream)."""
    rounds = _ROUNDS_OF_LARGE if _bits(size) >= _LARGE_BITS else _ROUNDS_OF_SMALL
    seeds = splitmix64(np.uint64(key) ^ splitmix64(streams.astype(np.uint64) * np.uint64(_GOLDEN)))
    steps = np.arange(1, rounds + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    return Permutation(size, splitmix64(seeds[np.newaxis, :] + steps[:, np.newaxis]))


def _bits(size: int) -> int:
    return (size - 1).bit_length()


def _scramble(half: Words, key: Words) -> Words:
    # Two multiplications are enough: the network repeats this many times. The upper half has the good bits.
    words = (half ^ key) * _FIRST
    words ^= words >> np.uint64(32)
    words *= _SECOND
    words >>= np.uint64(32)
    return words


WINDOW_SHARDS = 64


@dataclass(frozen=True)
class EpochOrder:
    """The record at each position of an epoch; every record has exactly one position.

    A window is window_shards * shard_records positions. Data of one window is shuffled perfectly.
    """

    records: int
    seed: int
    epoch: int
    shuffle: bool = True
    shard_records: int = 1024
    window_shards: int = WINDOW_SHARDS

    def records_at(self, start: int, stop: int) -> Indices:
        """Returns the records at positions start … stop - 1."""
        if not 0 <= start <= stop <= self.records:
            raise IndexError(f"positions {start} … {stop} of an epoch of {self.records} records")
        positions = np.arange(start, stop, dtype=np.int64)
        if not self.shuffle or start == stop:
            return positions
        return self._by_shards(self._in_windows(positions))

    def _in_windows(self, positions: Indices) -> Indices:
        """Permutes positions within their windows; the last window may be short."""
        size = min(self.window_shards * self.shard_records, self.records)
        full = self.records // size
        cut = int(np.searchsorted(positions, full * size))
        return np.concatenate(
            [self._in_window(positions[:cut], size, size), self._in_window(positions[cut:], size, self.records % size)]
        )

    def _in_window(self, positions: Indices, spacing: int, size: int) -> Indices:
        if not len(positions):
            return positions
        windows = positions // spacing
        first, last = int(windows[0]), int(windows[-1])
        permutation = keyed_permutations(size, self._key("records"), np.arange(first, last + 1))
        if last > first:
            permutation = permutation.select_streams(windows - first)
        return windows * spacing + permutation.apply(positions - windows * spacing)

    def _by_shards(self, positions: Indices) -> Indices:
        """Returns the records at these positions if only whole shards are permuted."""
        permutation, short_at = self._shards
        short = self.records % self.shard_records
        if short:
            # Positions after the short shard are smaller by the records it lacks.
            after = positions >= short_at * self.shard_records + short
            positions = positions + after * (self.shard_records - short)
        shards, offsets = np.divmod(positions, self.shard_records)
        return permutation.apply(shards) * self.shard_records + offsets

    @cached_property
    def _shards(self) -> tuple[Permutation, int]:
        """The permutation of shards, and the new index of the last one, the only one that may be short."""
        count = count_shards(self.records, self.shard_records)
        permutation = keyed_permutations(count, self._key("shards"), np.zeros(1, dtype=np.int64))
        return permutation, int(permutation.apply_inverse(np.array([count - 1]))[0])

    def _key(self, purpose: str) -> int:
        # Any seed, however large, gives 64 bits; SHA-256 is the same everywhere and forever.
        digest = hashlib.sha256(f"elasticdl order {purpose} {self.seed} {self.epoch}".encode()).digest()
        return int.from_bytes(digest[:8], "little")
