"""Whether the loop of a master, or of a launcher, still turns: each says so to the other once a second. Pure: time is
an argument.

A master that replays a long journal has not begun to turn, and is not watched. Nor does the time count in which the
one who watches was held up: what the other said meanwhile may not be read yet.
"""

from __future__ import annotations

from enum import Enum, auto

CHECKS_PER_LIMIT = 8  # in the time it has


class LoopHealth(Enum):
    HEALTHY = auto()
    SILENT = auto()  # for half of its time: its stacks are wanted. Found once
    STALLED = auto()


class LoopMonitor:
    """Over one master or launcher, from the first time it said that its loop turns."""

    def __init__(self) -> None:
        self._limit_s = 0.0
        self._heard_at = 0.0
        self._looked_at = 0.0
        self._is_told = False

    def record_heartbeat(self, now: float, limit_s: float) -> None:
        """Its loop turns; it has `limit_s` to say so again. 0: it is not watched."""
        if not self._limit_s:
            self._looked_at = now
        self._limit_s, self._heard_at, self._is_told = limit_s, now, False

    @property
    def check_interval_s(self) -> float | None:
        """How soon to look again; None: it is not watched."""
        return self._limit_s / CHECKS_PER_LIMIT if self._limit_s else None

    def check(self, now: float) -> LoopHealth:
        if not self._limit_s:
            return LoopHealth.HEALTHY
        held_up_s, self._looked_at = now - self._looked_at, now
        if held_up_s > self._limit_s / 2:
            self._heard_at = now
        silent_s = now - self._heard_at
        if silent_s >= self._limit_s:
            return LoopHealth.STALLED
        if silent_s >= self._limit_s / 2 and not self._is_told:
            self._is_told = True
            return LoopHealth.SILENT
        return LoopHealth.HEALTHY
