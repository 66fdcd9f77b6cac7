"""Measures how fast this worker is, and what a change of round cost."""

from __future__ import annotations

import time
from collections import deque

_SMOOTHING = 0.2
_RECENT_STEPS = 128  # steps
_SLOW_QUANTILE = 0.95
_SORT_EVERY_STEPS = 8  # steps, between two looks at the recent ones


class StepTimer:
    """Smoothed times of the steps of one worker."""

    def __init__(self) -> None:
        self.step_s = 0.0  # smoothed time of a whole step
        self.compute_s = 0.0  # smoothed time of one pass of one logical rank
        # Since the round was entered, its first update left out:
        self.timed_steps = 0  # updates
        self.one_pass_step_s = 0.0  # smoothed time of an update as if it had one pass only
        self.pass_s = 0.0  # smoothed time of computing one pass
        self.slow_step_s = 0.0  # 95 % of the recent steps took less; 0: not known yet
        self._recent: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._seen = 0  # steps that were timed, in all rounds
        self._pass_s = 0.0  # of the update that runs
        self._passes = 1
        self._began_at = 0.0
        self._applied_at: float | None = None
        self._is_first = True

    def begin_step(self) -> None:
        self._began_at = time.monotonic()

    def record_computed(self, logical_ranks: int, passes: int = 1) -> None:
        self._passes, self._pass_s = passes, (time.monotonic() - self._began_at) / passes
        self.compute_s = _smooth(self.compute_s, self._pass_s / logical_ranks)

    def begin_round(self) -> None:
        """The next step is the first of a round."""
        self._is_first = True
        self.timed_steps, self.one_pass_step_s, self.pass_s = 0, 0.0, 0.0

    def record_applied(self) -> float | None:
        """A step is done. After the first of a round, returns how much longer it took than an ordinary step."""
        now = time.monotonic()
        since_s = now - self._applied_at if self._applied_at is not None else self.step_s
        self._applied_at = now
        if self._is_first:
            self._is_first = False
            return max(0.0, since_s - self.step_s)
        self.step_s = _smooth(self.step_s, since_s)
        self._record_recent(since_s)
        self.timed_steps += 1
        self.one_pass_step_s = _smooth(self.one_pass_step_s, since_s - (self._passes - 1) * self._pass_s)
        self.pass_s = _smooth(self.pass_s, self._pass_s)
        return None

    def _record_recent(self, step_s: float) -> None:
        self._recent.append(step_s)
        self._seen += 1
        if self._seen <= _SORT_EVERY_STEPS or self._seen % _SORT_EVERY_STEPS == 0:
            self.slow_step_s = sorted(self._recent)[int(_SLOW_QUANTILE * (len(self._recent) - 1))]


def _smooth(before: float, value: float) -> float:
    return value if not before else before + _SMOOTHING * (value - before)
