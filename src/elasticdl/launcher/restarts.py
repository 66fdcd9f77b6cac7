"""Whether a dead master is started again."""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass

from elasticdl.launcher.interface import Exited

WRONG_JOB = 2  # exit code of a command whose job is wrong: starting it again cannot help


@dataclass(frozen=True, slots=True)
class Restart:
    pass


@dataclass(frozen=True, slots=True)
class GiveUp:
    reason: str
    exit_code: int


class Restarts:
    """Deaths from outside are free; a master that keeps ending by itself is given up.

    A death counts if the master never got to serve, or if it was not killed. `limit` of them within
    `window_s` are too many.
    """

    def __init__(self, *, limit: int = 5, window_s: float = 60.0) -> None:
        self._limit = limit
        self._window_s = window_s
        self._counted: deque[float] = deque()

    def decide(self, death: Exited, *, served: bool) -> Restart | GiveUp:
        if death.code == WRONG_JOB:
            return GiveUp("the master refused the job", WRONG_JOB)
        taken_away = death.signal in (signal.SIGKILL, signal.SIGTERM) or (death.code is None and death.signal is None)
        if served and taken_away:
            return Restart()
        self._counted.append(death.at)
        while self._counted[0] < death.at - self._window_s:
            self._counted.popleft()
        if len(self._counted) < self._limit:
            return Restart()
        return GiveUp(f"the master ended {self._limit} times within {self._window_s:g} s, last: {death.why}", 1)
