"""How often workers may fail, when preemptions count as failures, and the delay before a relaunch. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.retry import backoff_delay

# Incidents without progress that may have outside causes. Each further one counts as a failure.
FREE_INCIDENTS = 2


@dataclass(slots=True)
class LossStreak:
    """Losses of workers without progress in between: the first are preemptions, further ones are failures.

    Machines are preempted whether or not a job makes progress. Workers that are killed at the same step again and
    again, for example by the kernel's OOM killer, are not preempted, whoever sent the signal. All workers that existed
    when the first of them was lost belong to one incident, so losing ten at once counts once. The loss of a worker that
    was launched since then, without progress of the job, is the next incident.
    """

    progress: int = -1  # of the job at the newest incident
    incidents: int = 0
    next_worker: int = 0  # the number of the first worker launched after the newest incident

    def add_loss(self, progress: int, worker: int, next_worker: int) -> bool:
        """Record the loss of worker number `worker`. True: it is a new incident.

        `next_worker` is the number that the next launched worker will have.
        """
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
        """Whether the job has made progress since the newest incident."""
        return not self.incidents or progress > self.progress


_MAX_DELAY_S = 60.0


@dataclass(slots=True)
class FailureBudget:
    """Counts crashes. Preemptions do not count while the job makes progress between them (see LossStreak)."""

    limit: int
    spent: int = 0
    consecutive: int = 0
    relaunch_at: float = 0.0

    @property
    def is_exhausted(self) -> bool:
        return self.spent > self.limit

    def count_crash(self, now: float, relaunch_backoff_s: float, in_a_row: int = 0) -> None:
        """Count a crash. The delay before the next launch doubles until a worker does useful work.

        `in_a_row`: earlier losses without progress that were not counted.
        """
        self.spent += 1
        self.consecutive = max(self.consecutive, in_a_row)
        self.relaunch_at = now + _relaunch_delay_s(relaunch_backoff_s, self.consecutive)
        self.consecutive += 1

    def count_preemption(self, now: float, relaunch_backoff_s: float, in_a_row: int = 0) -> None:
        """Delay the next launch, since a worker was preempted before it did useful work."""
        self.relaunch_at = max(self.relaunch_at, now + _relaunch_delay_s(relaunch_backoff_s, in_a_row))

    def reset_delay(self) -> None:
        self.consecutive = 0
        self.relaunch_at = 0.0


def _relaunch_delay_s(relaunch_backoff_s: float, in_a_row: int) -> float:
    return backoff_delay(in_a_row, relaunch_backoff_s, _MAX_DELAY_S)
