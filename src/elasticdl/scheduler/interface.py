"""The interfaces of the scheduler: rate models of jobs, policies, and the cluster on which a plan is carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from elasticdl.scheduler.plan import AllocationPlan
    from elasticdl.scheduler.snapshot import Snapshot

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BatchConfig:
    """The batch with which a job makes a step."""

    local_batch: int  # records of one worker in one pass
    passes: int = 1  # passes whose gradients are summed before an update
    learning_rate_scale: float = 1.0

    def total_records(self, workers: int) -> int:
        return self.local_batch * self.passes * workers


class RateModel(Protocol):
    """Predicts the useful work per second of a job with an allocation. Each job has its own unit of work."""

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        """Returns the rates for arrays of worker and node counts of the same shape; 0 for 0 workers."""
        ...

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        """Returns the batch that reaches the rate; None: the job's own batch."""
        ...


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, and what the policy wants to remember for its next decision."""

    plan: AllocationPlan
    memory: Any = None
    blocks_lower_priorities: bool = (
        False  # jobs of lower priority get nothing, because a job waits for the free devices
    )


class Policy(Protocol):
    """A scheduling rule: a pure function of a snapshot and of its own memory.

    The same snapshot and memory give the same decision. A policy sees the jobs of one priority; `priorities` calls it
    once for each priority, with the resources that higher priorities left.
    """

    @property
    def name(self) -> str: ...

    @property
    def is_rigid(self) -> bool:
        """Whether a job gets all the workers it requested or none."""
        ...

    @property
    def interval_s(self) -> float:
        """How often the policy decides even if nothing happens; 0: never."""
        ...

    @property
    def decides_on_events(self) -> bool:
        """Whether the policy also decides when a job comes or ends, not only every `interval_s`."""
        ...

    @property
    def adapts_batch(self) -> bool:
        """Whether the policy is for jobs that train with the best batch for their workers."""
        ...

    @property
    def needs_oracle(self) -> bool:
        """Whether the policy needs the true speeds of jobs, which only the simulator knows."""
        ...

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        """`memory` is that of the last decision, None at first."""
        ...


class Cluster(Protocol):
    """The cluster on which plans are carried out: this machine, a Kubernetes namespace, or the simulator."""

    def snapshot(self, now: float) -> Snapshot: ...

    def apply(self, plan: AllocationPlan, now: float) -> None: ...
