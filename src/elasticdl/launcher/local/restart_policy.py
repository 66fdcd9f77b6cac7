"""Decides whether a dead master is restarted."""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass

from elasticdl.errors import JournalDamaged
from elasticdl.launcher.interface import ExitedProcess

JOURNAL_DAMAGED_CODE = JournalDamaged.exit_code
WRONG_JOB_CODE = 2  # exit code of a command whose job is wrong: starting it again cannot help


@dataclass(frozen=True, slots=True)
class Restart:
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GiveUp:
    reason: str
    exit_code: int


class RestartPolicy:
    """Restarts a master that was killed from outside without limit, and one that keeps failing a few times.

    A death counts if the master had not begun to serve, or if it was not killed. At `limit` deaths within `window_s`
    the policy gives up. From the second one on there is a pause, twice as long each time, because the cause (no
    descriptor left, a disk error) may be temporary.
    """

    def __init__(self, *, limit: int = 5, window_s: float = 60.0, pause_s: float = 0.5) -> None:
        self._limit = limit
        self._window_s = window_s
        self._pause_s = pause_s
        self._deaths_at: deque[float] = deque()

    def decide(self, death: ExitedProcess, *, served: bool) -> Restart | GiveUp:
        if death.code == WRONG_JOB_CODE:
            return GiveUp("the master refused the job", WRONG_JOB_CODE)
        if death.code == JOURNAL_DAMAGED_CODE:
            return GiveUp("the master refused its journal", 1)
        is_unknown = death.code is None and death.signal is None
        was_killed = is_unknown or death.signal in (signal.SIGKILL, signal.SIGTERM)
        if served and was_killed:
            return Restart()
        now = death.ended_at
        self._deaths_at.append(now)
        while not now - self._window_s <= self._deaths_at[0] <= now:  # too old, or the clock was set back
            self._deaths_at.popleft()
        deaths = len(self._deaths_at)
        if deaths < self._limit:
            return Restart(self._pause_s * 2.0 ** (deaths - 2) if deaths > 1 else 0.0)
        return GiveUp(f"the master ended {self._limit} times within {self._window_s:g} s, last: {death.description}", 1)
