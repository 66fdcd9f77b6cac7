"""Time as an argument: deciding code receives `now`, loops own a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""


class WallClock:
    def now(self) -> float:
        return time.time()


class OffsetClock:
    """Another clock plus an offset, so that time goes on after the system clock was set back."""

    def __init__(self, clock: Clock, by_s: float) -> None:
        self._clock = clock
        self._by_s = by_s

    def now(self) -> float:
        return self._clock.now() + self._by_s
