"""A clock for tests."""

from __future__ import annotations


class ManualClock:
    """A clock that moves only by `advance`, for tests and simulations."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
