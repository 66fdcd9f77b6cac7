"""What a ps has counted: updates, pushes, requests, and how old the values were that pushes were computed with."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from elasticdl.ps.counter import Counter
from elasticdl.ps.terms import BUCKETS, bucket


class Tally:
    """Every method may be called from any thread. With a path the pushes are counted there, too."""

    def __init__(self, path: Path | None = None) -> None:
        self._counter = Counter(path) if path else None
        self._lock = threading.Lock()  # of all that follows
        self.clock = 1  # one more with every update
        self.requests = 0  # answered
        self.applied = 0  # pushes
        self.repeated = 0
        self.refused = 0
        self.stale = 0
        self.staleness = [0] * BUCKETS

    def push(self, staleness: int, *, is_update: bool) -> None:
        """One was taken; whether it made an update, alone or as the last of several."""
        with self._lock:
            self.applied += 1
            self.staleness[bucket(staleness)] += 1
            self._update(is_update)

    def update(self) -> None:
        """One without a push."""
        with self._lock:
            self._update(True)

    def count(self, *, repeated: int = 0, refused: int = 0, stale: int = 0) -> None:
        with self._lock:
            self.repeated += repeated
            self.refused += refused
            self.stale += stale

    def values(self) -> dict[str, Any]:
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
        if self._counter:
            self._counter.set(self.applied, self.clock)
