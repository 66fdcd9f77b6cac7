"""How an experiment went, simulated or real: who had how many workers when, and when each began and ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from elasticdl.sim.interface import Record, Span


@dataclass(frozen=True, slots=True)
class Run:
    """One job. Times in seconds from the beginning of the experiment."""

    submitted_at: float
    started_at: float | None  # first workers
    ended_at: float | None
    spans: tuple[tuple[float, float, int], ...]  # from, to, devices

    @property
    def waited_s(self) -> float | None:
        """Until it had its first workers."""
        return None if self.started_at is None else self.started_at - self.submitted_at


@dataclass(frozen=True, slots=True)
class Course:
    policy: str
    devices: int
    end_s: float
    runs: Mapping[str, Run]

    @property
    def utilisation(self) -> float:
        """Devices that were given to jobs, of all, until the end."""
        given = sum((end - start) * count for run in self.runs.values() for start, end, count in run.spans)
        return given / (self.devices * self.end_s)

    def at(self, names: Iterable[str], times: Iterable[float]) -> list[int]:
        """Devices of these jobs together, at each time."""
        spans = [span for name in names for span in self.runs[name].spans]
        return [sum(count for start, end, count in spans if start <= at < end) for at in times]

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"utilisation": self.utilisation}


def course_of(policy: str, devices: int, records: Iterable[Record], until_s: float) -> Course:
    """Of simulated jobs of one device a worker. Without an end: until the last is over."""
    runs = {
        one.name: Run(one.submitted_at, one.started_at, one.finished_at, _spans(one.spans, until_s)) for one in records
    }
    last = max((run.ended_at or 0.0 for run in runs.values()), default=0.0)
    return Course(policy, devices, min(last, until_s), runs)


def _spans(spans: Iterable[Span], until_s: float) -> tuple[tuple[float, float, int], ...]:
    return tuple((one.start_s, min(one.end_s, until_s), one.workers) for one in spans if one.start_s < until_s)
