"""The workload protocol, change costs and job records of the simulator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from elasticdl.scheduler.interface import BatchConfig, RateModel
from elasticdl.scheduler.snapshot import GradientNoise, SpeedSample

WorkersPerNode = tuple[int, ...]
"""Workers on each of its nodes, in the order of their names."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a scheduler is told about a job, besides what it asks for."""

    speeds: tuple[SpeedSample, ...] = ()
    noise: GradientNoise | None = None
    rates: RateModel | None = None
    work_left: float | None = None
    work_done: float = 0.0


@dataclass(frozen=True, slots=True)
class ChangeCost:
    """What changes cost a job, in seconds. Systems that restart from a checkpoint have start and change alike."""

    start_s: float = 30.0  # from its devices to its first step
    change_s: float = 30.0  # without progress, when its workers change
    join_s: float = 0.0  # until new workers take part; the others go on meanwhile

    @classmethod
    def uniform(cls, seconds: float) -> ChangeCost:
        return cls(seconds, seconds, 0.0)


class Workload(Protocol):
    """The work of a job: how quickly it goes with which workers, and when that changes."""

    @property
    def name(self) -> str:
        """Of its application."""
        ...

    @property
    def is_done(self) -> bool: ...

    def place(self, placement: WorkersPerNode, kind: str, batch: BatchConfig | None) -> None:
        """It computes with these workers from now on; () for none."""
        ...

    def rate(self) -> float:
        """Work a second now."""
        ...

    def work_to_next_change(self) -> float:
        """Work until its rate changes by itself, or it is done."""
        ...

    def advance(self, work: float) -> bool:
        """Do so much, at most `to_mark`. Whether the rate is another afterwards."""
        ...

    def report(self) -> JobReport: ...

    def isolated_duration_s(self, workers: float) -> float:
        """Seconds from its first step to its end, with so many workers all the time on as few nodes as possible."""
        ...


@dataclass(frozen=True, slots=True)
class AllocationSpan:
    """A job had these workers from then to then: a bar of the Gantt chart."""

    job: str
    start_s: float
    end_s: float
    workers: int
    nodes: int = 0


@dataclass(slots=True)
class JobRecord:
    """What became of one job."""

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
    fairness: float | None = None  # its time over that on its fair share alone
    reason: str = ""  # it never ran
    spans: list[AllocationSpan] = field(default_factory=list)

    @property
    def jct_s(self) -> float | None:
        return None if self.finished_at is None else self.finished_at - self.submitted_at
