"""Losses of workers without progress in between: preemptions at first, failures when they go on. Pure.

Who takes machines away takes them whether or not a job gets on. A worker that is killed at the same place again and
again, as by the kernel's OOM killer, is no such case, whoever sent the signal. What counts is incidents: all workers
that were there when the first of them was lost belong to one, so that losing ten at once is one loss. The next incident
is the loss of a worker that was launched since, while the job got no further.
"""

from __future__ import annotations

from dataclasses import dataclass

# Incidents at the same place that may be somebody else's doing. From the next one on each is a failure.
FREE_INCIDENTS = 2


@dataclass(slots=True)
class Setbacks:
    """Incidents since the job got further."""

    progress: int = -1  # how far the job was at the newest
    incidents: int = 0
    next_worker: int = 0  # the number of the first worker that was not there yet at the newest

    def add(self, progress: int, worker: int, next_worker: int) -> bool:
        """Worker number `worker` is lost, the next one will have the number `next_worker`. True: it is an incident."""
        if progress > self.progress:
            self.progress, self.incidents, self.next_worker = progress, 1, next_worker
            return True
        if worker < self.next_worker:
            return False
        self.incidents, self.next_worker = self.incidents + 1, next_worker
        return True

    @property
    def are_failures(self) -> bool:
        return self.incidents > FREE_INCIDENTS

    def is_overcome(self, progress: int) -> bool:
        """Whether the job got further since."""
        return not self.incidents or progress > self.progress
