"""How often workers may fail, when a preemption counts as a failure, and the delay before a relaunch. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.retry import backoff_delay

# Incidents at the same place that may be somebody else's doing. From the next one on each is a failure.
FREE_INCIDENTS = 2


@dataclass(slots=True)
class LossStreak:
    """Losses of workers since the job made progress: preemptions at first, failures when they go on.

    Whoever takes machines away takes them whether or not a job makes progress. A worker that is killed at the same
    place again and again, as by the kernel's OOM killer, is no such case, whoever sent the signal. What counts is
    incidents: all workers that existed when the first of them was lost belong to one, so losing ten at once is one
    loss. The next incident is the loss of a worker that was launched since, while the job made no progress.
    """

    progress: int = -1  # how far the job was at the newest
    incidents: int = 0
    next_worker: int = 0  # the number of the first worker that was not there yet at the newest

    def add_loss(self, progress: int, worker: int, next_worker: int) -> bool:
        """Worker number `worker` is lost, the next one will have the number `next_worker`. True: it is an incident."""
        if progress > self.progress:
            self.progress, self.incidents, self.next_worker = progress, 1, next_worker
            return True
        if worker < self.next_worker:
            return False
        self.incidents, self.next_worker = self.incidents + 1, next_worker
        return True

    @property
    def is_failure(self) -> bool:
        return self.incidents > FREE_INCIDENTS

    def has_progressed(self, progress: int) -> bool:
        """Whether the job got further since."""
        return not self.incidents or progress > self.progress


_MAX_DELAY_S = 60.0


@dataclass(slots=True)
class FailureBudget:
    """Crashes count; preemptions do not, as long as the job makes progress between them (see LossStreak)."""

    limit: int
    spent: int = 0
    consecutive: int = 0
    relaunch_at: float = 0.0

    @property
    def is_exhausted(self) -> bool:
        return self.spent > self.limit

    def count_crash(self, now: float, relaunch_backoff_s: float, in_a_row: int = 0) -> None:
        """Count one crash; the pause before the next launch doubles until a worker gets as far as a round.

        `in_a_row`: losses before it, at the same place, that were not counted.
        """
        self.spent += 1
        self.consecutive = max(self.consecutive, in_a_row)
        self.relaunch_at = now + _relaunch_delay_s(relaunch_backoff_s, self.consecutive)
        self.consecutive += 1

    def count_preemption(self, now: float, relaunch_backoff_s: float, in_a_row: int = 0) -> None:
        """A worker was preempted before it was of use: not its fault, but no reason to spin either."""
        self.relaunch_at = max(self.relaunch_at, now + _relaunch_delay_s(relaunch_backoff_s, in_a_row))

    def reset_delay(self) -> None:
        self.consecutive = 0
        self.relaunch_at = 0.0


def _relaunch_delay_s(relaunch_backoff_s: float, in_a_row: int) -> float:
    return backoff_delay(in_a_row, relaunch_backoff_s, _MAX_DELAY_S)
