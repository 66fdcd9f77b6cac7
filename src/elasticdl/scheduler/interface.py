"""What meets here: rates of jobs, policies, and the cluster that a plan is carried out on."""

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
    """How a job makes a step with its workers."""

    local_batch: int  # records of one worker in one pass
    passes: int = 1  # whose gradients are summed before an update
    learning_rate_scale: float = 1.0

    def total_records(self, workers: int) -> int:
        return self.local_batch * self.passes * workers


class RateModel(Protocol):
    """Useful work a second that a job does with an allocation, as far as anybody knows. Work has the job's own unit."""

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        """For so many workers on so many nodes each, arrays of one shape. 0 workers: 0."""
        ...

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        """The batch at which it does that; None: the job's own."""
        ...


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, and all that the policy wants to be told next time: history is never hidden."""

    plan: AllocationPlan
    memory: Any = None
    blocks_lower_priorities: bool = (
        False  # jobs of lower priority get nothing, though there is room: somebody waits for it
    )


class Policy(Protocol):
    """A rule: a pure function of what it is shown and of what it answered before.

    The same snapshot and memory give the same decision. It sees the jobs of one priority only; `tiers` asks it for each
    priority, with the room that greater ones left.
    """

    @property
    def name(self) -> str: ...

    @property
    def is_rigid(self) -> bool:
        """Whether it gives a job all that its owner asked for or nothing."""
        ...

    @property
    def interval_s(self) -> float:
        """How often it wants to be asked though nothing happened; 0: not at all."""
        ...

    @property
    def decides_on_events(self) -> bool:
        """Whether it is also asked whenever a job comes or ends; else only every `interval_s`."""
        ...

    @property
    def adapts_batch(self) -> bool:
        """Whether it is meant for jobs that train with the best batch for their workers."""
        ...

    @property
    def needs_oracle(self) -> bool:
        """Whether it is to be told true speeds: only a simulator can."""
        ...

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        """`memory` is what the last decision said, None at first."""
        ...


class Cluster(Protocol):
    """Where plans are carried out: this machine, Kubernetes, or the simulator."""

    def snapshot(self, now: float) -> Snapshot: ...

    def apply(self, plan: AllocationPlan, now: float) -> None: ...
