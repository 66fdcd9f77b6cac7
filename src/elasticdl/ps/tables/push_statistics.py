"""The statistics of a ps: updates, pushes, requests and staleness, in memory and in a mapped file.

The mapped file outlives the process, so the number of pushes is known after a ps was killed.
"""

from __future__ import annotations

import mmap
import struct
import threading
from pathlib import Path
from typing import Any, NamedTuple, Self

from elasticdl.ps.tables.push_policy import STALENESS_BUCKETS, staleness_bucket

_LAYOUT = struct.Struct("<QQ")


class PushCount(NamedTuple):
    applied: int  # pushes
    clock: int


class PushCountFile:
    """A mapped file, which keeps its values even after SIGKILL."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping

    @classmethod
    def create(cls, path: Path) -> Self:
        """Creates the file, or replaces that of an earlier process."""
        with path.open("wb+") as file:
            file.write(_LAYOUT.pack(0, 0))
            file.flush()
            return cls(mmap.mmap(file.fileno(), _LAYOUT.size))

    def write(self, applied: int, clock: int) -> None:
        _LAYOUT.pack_into(self._mapping, 0, applied, clock)


def read_push_count(path: Path) -> PushCount:
    """Reads the last count of a ps. Raises OSError or struct.error if there is no such file."""
    return PushCount(*_LAYOUT.unpack(path.read_bytes()))


class PushStatistics:
    """Counts pushes and updates, in memory and in `file`. Every method may be called from any thread."""

    def __init__(self, file: PushCountFile | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()  # guards everything below
        self.clock = 1  # one more with every update
        self.requests = 0  # answered
        self.applied = 0  # pushes
        self.repeated = 0
        self.refused = 0
        self.stale = 0
        self.staleness = [0] * STALENESS_BUCKETS

    def record_push(self, staleness: int, *, is_update: bool) -> None:
        """Counts an accepted push, and an update if the push made one, alone or as the last of several."""
        with self._lock:
            self.applied += 1
            self.staleness[staleness_bucket(staleness)] += 1
            self._update(is_update)

    def record_update(self) -> None:
        """Counts an update without a push."""
        with self._lock:
            self._update(True)

    def add(self, *, repeated: int = 0, refused: int = 0, stale: int = 0) -> None:
        with self._lock:
            self.repeated += repeated
            self.refused += refused
            self.stale += stale

    def as_dict(self) -> dict[str, Any]:
        with self._lock:
            return {
                "requests": self.requests,
                "applied": self.applied,
                "repeated": self.repeated,
                "refused": self.refused,
                "staleness": list(self.staleness),
                "clock": self.clock,
            }

    def _update(self, is_update: bool) -> None:
        self.clock += is_update
        if self._file:
            self._file.write(self.applied, self.clock)
