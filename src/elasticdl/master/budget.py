"""How often workers may fail, and how long to wait before the next is launched."""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST_S = 60.0


@dataclass(slots=True)
class Budget:
    """Crashes count; preemptions do not, as long as the job gets on between them (setbacks.py)."""

    limit: int
    spent: int = 0
    in_a_row: int = 0
    relaunch_at: float = 0.0

    @property
    def is_exhausted(self) -> bool:
        return self.spent > self.limit

    def crashed(self, now: float, relaunch_s: float, in_a_row: int = 0) -> None:
        """Count one crash; the pause before the next launch doubles until a worker gets as far as a round.

        `in_a_row`: losses before it, at the same place, that were not counted.
        """
        self.spent += 1
        self.in_a_row = max(self.in_a_row, in_a_row)
        self.relaunch_at = now + _pause(relaunch_s, self.in_a_row)
        self.in_a_row += 1

    def taken_away(self, now: float, relaunch_s: float, in_a_row: int = 0) -> None:
        """A worker was preempted before it was of use: not its fault, but no reason to spin either."""
        self.relaunch_at = max(self.relaunch_at, now + _pause(relaunch_s, in_a_row))

    def worked(self) -> None:
        self.in_a_row = 0
        self.relaunch_at = 0.0


def _pause(relaunch_s: float, in_a_row: int) -> float:
    return min(relaunch_s * 2.0 ** min(in_a_row, 30), _LONGEST_S)
