"""A job whose end anybody can compute by hand, and small traces of such jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.scheduler.interface import BatchConfig, RateModel
from elasticdl.scheduler.snapshot import NodeInfo
from elasticdl.sim.interface import ChangeCost, JobReport, WorkersPerNode
from elasticdl.sim.traces.trace import TraceJob
from tests.unit.scheduler.cases import Concave

FREE = ChangeCost.uniform(0.0)


@dataclass
class Work:
    """So much work; a worker does one unit a second, w of them w ** power, on several nodes `apart` of it."""

    total: float
    power: float = 1.0
    apart: float = 1.0
    is_known: bool = True
    name: str = "work"
    done: float = 0.0
    placement: WorkersPerNode = ()
    placements: list[WorkersPerNode] = field(default_factory=list)

    @property
    def rates(self) -> RateModel:
        return Concave(self.power, self.apart)

    @property
    def is_done(self) -> bool:
        return self.done >= self.total

    def place(self, placement: WorkersPerNode, kind: str, batch: BatchConfig | None) -> None:
        self.placement = placement
        self.placements.append(placement)

    def rate(self) -> float:
        return float(self.rates.work_per_s(sum(self.placement), len(self.placement)))

    def work_to_next_change(self) -> float:
        return self.total - self.done

    def advance(self, work: float) -> bool:
        self.done += work
        return False

    def report(self) -> JobReport:
        if not self.is_known:
            return JobReport(work_done=self.done)
        return JobReport(rates=self.rates, work_left=self.total - self.done, work_done=self.done)

    def isolated_duration_s(self, workers: float) -> float:
        return self.total / max(workers, 1e-9) ** self.power


def trace_job(
    name: str, work: float, submitted_at: float = 0.0, max_workers: int = 1, min_workers: int = 1, **more: object
) -> TraceJob:
    return TraceJob(name, submitted_at, Work(work), max_workers, min_workers, max_workers, **more)  # type: ignore[arg-type]


def nodes(*devices: int) -> tuple[NodeInfo, ...]:
    return tuple(NodeInfo(f"n{index}", count) for index, count in enumerate(devices))
