"""What a policy answers: for each job its workers, where, how they train, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.scheduler.interface import BatchConfig
from elasticdl.scheduler.snapshot import WorkersByNode


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one job gets. Without workers it waits."""

    workers: WorkersByNode
    reason: str  # for a person: why so many, or why it waits
    share: float = 1.0  # of each of its devices; the rest is another job's
    batch: BatchConfig | None = None  # None: as the job likes
    expected_wait_s: float | None = None  # until it has workers, or more of them; None: nobody can say
    is_rejected: bool = False  # it can never run here

    @property
    def worker_count(self) -> int:
        return sum(self.workers.values())


@dataclass(frozen=True, slots=True)
class AllocationPlan:
    """For every job of the snapshot."""

    allocations: Mapping[str, Allocation] = field(default_factory=dict)

    def workers_of(self, job: str) -> WorkersByNode:
        allocation = self.allocations.get(job)
        return allocation.workers if allocation else {}
