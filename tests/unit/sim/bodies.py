"""A job whose end anybody can compute by hand, and small traces of such jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.scheduler.interface import Batch, Rates
from elasticdl.scheduler.snapshot import Node
from elasticdl.sim.interface import Cost, Knowledge, Placement
from elasticdl.sim.trace import TraceJob
from tests.unit.scheduler.cases import Concave

FREE = Cost.alike(0.0)


@dataclass
class Work:
    """So much work; a worker does one unit a second, w of them w ** power, on several nodes `apart` of it."""

    total: float
    power: float = 1.0
    apart: float = 1.0
    is_known: bool = True
    name: str = "work"
    done: float = 0.0
    placement: Placement = ()
    placements: list[Placement] = field(default_factory=list)

    @property
    def rates(self) -> Rates:
        return Concave(self.power, self.apart)

    @property
    def is_done(self) -> bool:
        return self.done >= self.total

    def place(self, placement: Placement, kind: str, batch: Batch | None) -> None:
        self.placement = placement
        self.placements.append(placement)

    def rate(self) -> float:
        return float(self.rates.at(sum(self.placement), len(self.placement)))

    def to_mark(self) -> float:
        return self.total - self.done

    def advance(self, work: float) -> bool:
        self.done += work
        return False

    def known(self) -> Knowledge:
        if not self.is_known:
            return Knowledge(work_done=self.done)
        return Knowledge(rates=self.rates, work_left=self.total - self.done, work_done=self.done)

    def alone_s(self, workers: float) -> float:
        return self.total / max(workers, 1e-9) ** self.power


def told(name: str, work: float, at: float = 0.0, maximum: int = 1, minimum: int = 1, **more: object) -> TraceJob:
    return TraceJob(name, at, Work(work), maximum, minimum, maximum, **more)  # type: ignore[arg-type]


def nodes(*devices: int) -> tuple[Node, ...]:
    return tuple(Node(f"n{index}", count) for index, count in enumerate(devices))
