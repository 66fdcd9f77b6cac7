"""The workload protocol, change costs and job records of the simulator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from elasticdl.scheduler.interface import BatchConfig, RateModel
from elasticdl.scheduler.snapshot import GradientNoise, SpeedSample

WorkersPerNode = tuple[int, ...]
"""Workers on each node of a job, in the order of the nodes' names."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a scheduler knows of a job besides its requests."""

    speeds: tuple[SpeedSample, ...] = ()
    noise: GradientNoise | None = None
    rates: RateModel | None = None
    work_left: float | None = None
    work_done: float = 0.0


@dataclass(frozen=True, slots=True)
class ChangeCost:
    """The cost of changes in seconds. If a system restarts from a checkpoint, a start and a change cost the same."""

    start_s: float = 30.0  # from its allocation to its first step
    change_s: float = 30.0  # pause of the job when its workers change
    join_s: float = 0.0  # until new workers take part; the others continue until then

    @classmethod
    def uniform(cls, seconds: float) -> ChangeCost:
        return cls(seconds, seconds, 0.0)


class Workload(Protocol):
    """The work of a job: how fast it goes with which workers, and when its rate changes."""

    @property
    def name(self) -> str:
        """The name of its application."""
        ...

    @property
    def is_done(self) -> bool: ...

    def place(self, placement: WorkersPerNode, kind: str, batch: BatchConfig | None) -> None:
        """Continues with these workers from now on; () for none."""
        ...

    def rate(self) -> float:
        """Returns the current work per second."""
        ...

    def work_to_next_change(self) -> float:
        """Returns the work until the rate changes by itself, or the job ends."""
        ...

    def advance(self, work: float) -> bool:
        """Advances by this much work, at most `work_to_next_change`. Returns whether the rate changes."""
        ...

    def report(self) -> JobReport: ...

    def isolated_duration_s(self, workers: float) -> float:
        """Returns its duration from the first step, with this many workers on as few nodes as possible all the time."""
        ...


@dataclass(frozen=True, slots=True)
class AllocationSpan:
    """The time during which a job had the same workers: a bar of the Gantt chart."""

    job: str
    start_s: float
    end_s: float
    workers: int
    nodes: int = 0


@dataclass(slots=True)
class JobRecord:
    """The history of one job."""

    name: str
    application: str
    submitted_at: float
    requested: int
    priority: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    waited_s: float = 0.0  # without workers
    attained_s: float = 0.0
    restarts: int = 0
    fairness: float | None = None  # its duration over that on its fair share alone
    reason: str = ""  # why it never ran
    spans: list[AllocationSpan] = field(default_factory=list)

    @property
    def jct_s(self) -> float | None:
        return None if self.finished_at is None else self.finished_at - self.submitted_at
