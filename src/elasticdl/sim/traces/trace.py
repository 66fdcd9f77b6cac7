"""One job of a trace, and the check that a trace is in order of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elasticdl.errors import DataError
from elasticdl.scheduler.snapshot import PlacementConstraint
from elasticdl.sim.interface import Workload


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace."""

    name: str
    submitted_at: float
    workload: Workload
    requested: int = 1
    min_workers: int = 1
    max_workers: int = 1
    sizes: tuple[int, ...] = ()
    priority: int = 0
    queue: str = ""
    devices: int = 1
    kinds: tuple[str, ...] = ()
    weight: float = 1.0
    is_guaranteed: bool = True
    may_share: bool = False
    device_use: float = 1.0
    request: Mapping[str, float] = field(default_factory=dict)  # other resources per worker
    constraints: tuple[PlacementConstraint, ...] = ()

    def __post_init__(self) -> None:
        if not self.submitted_at >= 0:
            raise DataError(f"job {self.name}: submitted at {self.submitted_at} s, expected a time of 0 or later")
        if not 1 <= self.min_workers <= self.max_workers:
            raise DataError(
                f"job {self.name}: minimum {self.min_workers}, maximum {self.max_workers}: expected 1 ≤ min ≤ max"
            )
        if self.requested < 1:
            raise DataError(f"job {self.name}: requests {self.requested} workers, expected at least one")


def check_order(path: Path, lines: Iterable[tuple[int, TraceJob]]) -> Iterator[TraceJob]:
    """Yields the jobs of a file's lines; raises DataError unless they are in order of time, with unique names."""
    last, names = 0.0, set()
    for number, job in lines:
        if job.submitted_at < last:
            raise DataError(
                f"{path}:{number}: expected jobs in order of time, received {job.submitted_at:g} s after {last:g} s"
            )
        if job.name in names:
            raise DataError(f"{path}:{number}: expected another name for each job, received {job.name!r} again")
        last = job.submitted_at
        names.add(job.name)
        yield job
