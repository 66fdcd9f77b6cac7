"""Time as an argument: deciding code receives `now`, loops own a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, as a person would read them off a wall."""


class WallClock:
    def now(self) -> float:
        return time.time()


class OffsetClock:
    """Another clock, so many seconds later: for who has promised times of a wall that was turned back since."""

    def __init__(self, clock: Clock, by_s: float) -> None:
        self._clock = clock
        self._by_s = by_s

    def now(self) -> float:
        return self._clock.now() + self._by_s


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
