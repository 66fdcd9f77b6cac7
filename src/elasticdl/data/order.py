"""The order of an epoch: a function of (seed, epoch) alone, in constant memory, read at any place.

Shards of neighbouring records change places first, then records change places within a window of shards. So a
batch mixes records from all over the data, yet the records of a window are read from few places of the files.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from elasticdl.data.interface import Indices
from elasticdl.data.permutation import Permutation, keyed
from elasticdl.data.shards import shard_count

WINDOW_SHARDS = 64


@dataclass(frozen=True)
class EpochOrder:
    """Which record stands at each position of the epoch; every record stands at exactly one.

    A window is window_shards * shard_records positions. Data of one window is shuffled perfectly.
    """

    records: int
    seed: int
    epoch: int
    shuffle: bool = True
    shard_records: int = 1024
    window_shards: int = WINDOW_SHARDS

    def at(self, start: int, stop: int) -> Indices:
        """The records at positions start … stop - 1."""
        if not 0 <= start <= stop <= self.records:
            raise IndexError(f"positions {start} … {stop} of an epoch of {self.records} records")
        positions = np.arange(start, stop, dtype=np.int64)
        if not self.shuffle or start == stop:
            return positions
        return self._by_shards(self._in_windows(positions))

    def _in_windows(self, positions: Indices) -> Indices:
        """Permute positions within their windows; the last window may be short."""
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
        permutation = keyed(size, self._key("records"), np.arange(first, last + 1))
        if last > first:
            permutation = permutation.chosen(windows - first)
        return windows * spacing + permutation.at(positions - windows * spacing)

    def _by_shards(self, positions: Indices) -> Indices:
        """The records at these positions when only whole shards had changed places."""
        permutation, short_at = self._shards
        short = self.records % self.shard_records
        if short:
            # Behind the short shard everything stands nearer by what it lacks.
            after = positions >= short_at * self.shard_records + short
            positions = positions + after * (self.shard_records - short)
        places, offsets = np.divmod(positions, self.shard_records)
        return permutation.at(places) * self.shard_records + offsets

    @cached_property
    def _shards(self) -> tuple[Permutation, int]:
        """How shards change places, and where the last one, the only one that may be short, comes to stand."""
        count = shard_count(self.records, self.shard_records)
        permutation = keyed(count, self._key("shards"), np.zeros(1, dtype=np.int64))
        return permutation, int(permutation.inverse(np.array([count - 1]))[0])

    def _key(self, purpose: str) -> int:
        # Any seed, however large, gives 64 bits; SHA-256 is the same everywhere and forever.
        digest = hashlib.sha256(f"elasticdl order {purpose} {self.seed} {self.epoch}".encode()).digest()
        return int.from_bytes(digest[:8], "little")
