"""The answer of a policy: for each job its workers, their nodes, its batch, and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.scheduler.interface import BatchConfig
from elasticdl.scheduler.snapshot import WorkersByNode


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one job gets. A job without workers waits."""

    workers: WorkersByNode
    reason: str  # for users: why it has this many workers, or why the job waits
    share: float = 1.0  # of each of its devices; another job has the remainder
    batch: BatchConfig | None = None  # None: the job's own
    expected_wait_s: float | None = None  # until it has workers, or more of them; None: unknown
    is_rejected: bool = False  # the job can never run on this cluster

    @property
    def worker_count(self) -> int:
        return sum(self.workers.values())


@dataclass(frozen=True, slots=True)
class AllocationPlan:
    """An allocation for every job of the snapshot."""

    allocations: Mapping[str, Allocation] = field(default_factory=dict)

    def workers_of(self, job: str) -> WorkersByNode:
        allocation = self.allocations.get(job)
        return allocation.workers if allocation else {}
