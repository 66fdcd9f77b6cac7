"""How often workers may fail, and how long to wait before the next is launched."""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST_S = 60.0


@dataclass(slots=True)
class Budget:
    """Crashes count; preemptions never do."""

    limit: int
    spent: int = 0
    in_a_row: int = 0
    relaunch_at: float = 0.0

    @property
    def is_exhausted(self) -> bool:
        return self.spent > self.limit

    def crashed(self, now: float, relaunch_s: float) -> None:
        """Count one crash; the pause before the next launch doubles until a worker gets as far as a round."""
        self.spent += 1
        self.relaunch_at = now + min(relaunch_s * 2.0**self.in_a_row, _LONGEST_S)
        self.in_a_row += 1

    def taken_away(self, now: float, relaunch_s: float) -> None:
        """A worker was preempted before it was of use: not its fault, but no reason to spin either."""
        self.relaunch_at = max(self.relaunch_at, now + relaunch_s)

    def worked(self) -> None:
        self.in_a_row = 0
        self.relaunch_at = 0.0
