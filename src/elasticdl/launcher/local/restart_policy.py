"""Whether a dead master is started again."""

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
    """Deaths from outside are free; a master that keeps ending by itself is given up.

    A death counts if the master never got to serve, or if it was not killed. `limit` of them within
    `window_s` are too many. From the second on there is a pause, twice as long each time: what ended it (no descriptor
    left, an error of the disk) may pass.
    """

    def __init__(self, *, limit: int = 5, window_s: float = 60.0, pause_s: float = 0.5) -> None:
        self._limit = limit
        self._window_s = window_s
        self._pause_s = pause_s
        self._counted: deque[float] = deque()

    def decide(self, death: ExitedProcess, *, served: bool) -> Restart | GiveUp:
        if death.code == WRONG_JOB_CODE:
            return GiveUp("the master refused the job", WRONG_JOB_CODE)
        if death.code == JOURNAL_DAMAGED_CODE:
            return GiveUp("the master refused its journal", 1)
        taken_away = death.signal in (signal.SIGKILL, signal.SIGTERM) or (death.code is None and death.signal is None)
        if served and taken_away:
            return Restart()
        self._counted.append(death.at)
        while not death.at - self._window_s <= self._counted[0] <= death.at:  # long ago, or before the wall went back
            self._counted.popleft()
        if len(self._counted) < self._limit:
            return Restart(self._pause_s * 2.0 ** (len(self._counted) - 2) if len(self._counted) > 1 else 0.0)
        return GiveUp(f"the master ended {self._limit} times within {self._window_s:g} s, last: {death.why}", 1)
