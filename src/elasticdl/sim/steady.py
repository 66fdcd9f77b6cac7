"""Work that goes on at one rate with what it has: what most bodies are made of."""

from __future__ import annotations


class Steady:
    """So much work; whoever derives from it sets `_rate` when it is placed."""

    def __init__(self, work: float) -> None:
        self._whole = self._left = work
        self._rate = 0.0

    @property
    def is_done(self) -> bool:
        return self._left <= 0

    def rate(self) -> float:
        return self._rate

    def to_mark(self) -> float:
        return self._left

    def advance(self, work: float) -> bool:
        self._left = 0.0 if work >= self._left - 1e-9 else self._left - work
        return False
