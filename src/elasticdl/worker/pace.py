"""How fast this worker is, and what a change of round cost."""

from __future__ import annotations

import time

_SMOOTHING = 0.2


class Pace:
    def __init__(self) -> None:
        self.step_s = 0.0  # smoothed time of a whole step
        self.compute_s = 0.0  # smoothed time of one pass of one logical rank
        # Since the round was entered, its first update left out:
        self.timed_steps = 0  # updates
        self.single_s = 0.0  # smoothed time of an update as if it had one pass only
        self.pass_s = 0.0  # of it, smoothed time of computing one pass
        self._pass_s = 0.0  # of the update that runs
        self._passes = 1
        self._began_at = 0.0
        self._applied_at: float | None = None
        self._is_first = True

    def begin(self) -> None:
        self._began_at = time.monotonic()

    def computed(self, logical_ranks: int, passes: int = 1) -> None:
        self._passes, self._pass_s = passes, (time.monotonic() - self._began_at) / passes
        self.compute_s = _smooth(self.compute_s, self._pass_s / logical_ranks)

    def entered(self) -> None:
        """The next step is the first of a round."""
        self._is_first = True
        self.timed_steps, self.single_s, self.pass_s = 0, 0.0, 0.0

    def applied(self) -> float | None:
        """A step is done. After the first of a round: seconds without a step beyond an ordinary one."""
        now = time.monotonic()
        since_s = now - self._applied_at if self._applied_at is not None else self.step_s
        self._applied_at = now
        if self._is_first:
            self._is_first = False
            return max(0.0, since_s - self.step_s)
        self.step_s = _smooth(self.step_s, since_s)
        self.timed_steps += 1
        self.single_s = _smooth(self.single_s, since_s - (self._passes - 1) * self._pass_s)
        self.pass_s = _smooth(self.pass_s, self._pass_s)
        return None


def _smooth(before: float, value: float) -> float:
    return value if not before else before + _SMOOTHING * (value - before)
