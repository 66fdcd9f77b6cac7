"""Whether the loop of a master or of a launcher is alive: they send each other a heartbeat every second. Pure.

A master that replays a long journal has not sent its first heartbeat, and is not watched yet. Time in which the watcher
itself was held up does not count either: heartbeats that arrived meanwhile may not have been read.
"""

from __future__ import annotations

from enum import Enum, auto

CHECKS_PER_LIMIT = 8  # checks within the time limit of a heartbeat


class LoopHealth(Enum):
    HEALTHY = auto()
    SILENT = auto()  # for half of the time limit: its stacks should be dumped. Returned once
    STALLED = auto()


class LoopMonitor:
    """Monitors one master or launcher from its first heartbeat on."""

    def __init__(self) -> None:
        self._limit_s = 0.0
        self._heartbeat_at = 0.0
        self._checked_at = 0.0
        self._is_silence_reported = False

    def record_heartbeat(self, now: float, limit_s: float) -> None:
        """Record a heartbeat; the next must come within `limit_s`. 0: stop watching."""
        if not self._limit_s:
            self._checked_at = now
        self._limit_s, self._heartbeat_at, self._is_silence_reported = limit_s, now, False

    @property
    def check_interval_s(self) -> float | None:
        """How soon to check again; None: it is not watched."""
        return self._limit_s / CHECKS_PER_LIMIT if self._limit_s else None

    def check(self, now: float) -> LoopHealth:
        if not self._limit_s:
            return LoopHealth.HEALTHY
        held_up_s, self._checked_at = now - self._checked_at, now
        if held_up_s > self._limit_s / 2:
            self._heartbeat_at = now
        silent_s = now - self._heartbeat_at
        if silent_s >= self._limit_s:
            return LoopHealth.STALLED
        if silent_s >= self._limit_s / 2 and not self._is_silence_reported:
            self._is_silence_reported = True
            return LoopHealth.SILENT
        return LoopHealth.HEALTHY
