"""The result of a scheduling experiment: the devices of each job over time, its start and its end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from elasticdl.sim.interface import AllocationSpan, JobRecord


@dataclass(frozen=True, slots=True)
class JobRun:
    """The run of one job. Times are in seconds from the start of the experiment."""

    submitted_at: float
    started_at: float | None  # when its devices became free for it
    running_at: float | None  # when its first workers made steps
    ended_at: float | None
    spans: tuple[tuple[float, float, int], ...]  # start, end, devices

    @property
    def waited_s(self) -> float | None:
        """The time it waited for devices."""
        return None if self.started_at is None else self.started_at - self.submitted_at

    @property
    def start_delay_s(self) -> float | None:
        """The time until its workers ran: its wait and its own start."""
        return None if self.running_at is None else self.running_at - self.submitted_at


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    policy: str
    devices: int
    end_s: float
    runs: Mapping[str, JobRun]

    @property
    def utilization(self) -> float:
        """The share of all devices that jobs used until the end."""
        used = sum((end - start) * count for run in self.runs.values() for start, end, count in run.spans)
        return used / (self.devices * self.end_s)

    def devices_at(self, names: Iterable[str], times: Iterable[float]) -> list[int]:
        """Returns the total devices of these jobs at each time."""
        spans = [span for name in names for span in self.runs[name].spans]
        return [sum(count for start, end, count in spans if start <= now < end) for now in times]

    def to_document(self) -> dict[str, Any]:
        return asdict(self) | {"utilisation": self.utilization}


def result_of_records(
    policy: str, devices: int, records: Iterable[JobRecord], until_s: float, start_s: float
) -> ExperimentResult:
    """Returns the result of simulated jobs with one device per worker that take `start_s` to start."""
    runs = {record.name: _job_run(record, until_s, start_s) for record in records}
    last = max((run.ended_at or 0.0 for run in runs.values()), default=0.0)
    return ExperimentResult(policy, devices, min(last, until_s), runs)


def _job_run(record: JobRecord, until_s: float, start_s: float) -> JobRun:
    spans = _clip_spans(record.spans, until_s)
    running_at = None if record.started_at is None else record.started_at + start_s
    # A job that had its devices for a shorter time never made a step.
    has_run = running_at is not None and spans and spans[-1][1] > running_at
    return JobRun(record.submitted_at, record.started_at, running_at if has_run else None, record.finished_at, spans)


def _clip_spans(spans: Iterable[AllocationSpan], until_s: float) -> tuple[tuple[float, float, int], ...]:
    return tuple((span.start_s, min(span.end_s, until_s), span.workers) for span in spans if span.start_s < until_s)


TWO_JOBS, MIXED = "two-jobs", "mixed"
TENTHS_BELOW_S = 10.0  # shorter times are shown with tenths of a second


def summarize(name: str, result: ExperimentResult) -> dict[str, str]:
    """Returns the numbers of one policy as short texts by title, for a table."""
    return _summarize_two_jobs(result) if name == TWO_JOBS else _summarize_mixed(result)


def _summarize_two_jobs(result: ExperimentResult) -> dict[str, str]:
    first, second = result.runs["first"], result.runs["second"]
    return {
        "first ends": _format_seconds(first.ended_at),
        "second waits": _format_seconds(second.waited_s),
        "second runs after": _format_seconds(second.start_delay_s),
        "both end": _format_seconds(result.end_s),
        "in use": f"{result.utilization:.0%}",
    }


def _summarize_mixed(result: ExperimentResult) -> dict[str, str]:
    service = [run for name, run in result.runs.items() if is_service(name)]
    trained = sum((e - s) * n for name, run in result.runs.items() if not is_service(name) for s, e, n in run.spans)
    served = result.utilization - trained / (result.devices * result.end_s)
    return {
        "in use": f"{result.utilization:.1%}",
        "by the service": f"{served:.1%}",
        "service waits at most": _format_longest(run.waited_s for run in service),
        "runs after at most": _format_longest(run.start_delay_s for run in service),
    }


def original_claim(name: str) -> str:
    """Returns the result that the paper of the original ElasticDL reports for this experiment."""
    if name == TWO_JOBS:
        return (
            "the original, on 320 CPUs: in gangs the first job ends at 650 s and both at 1300 s, the second waits; "
            "elastic, both end at 1100 s and hardly anybody waits"
        )
    return "the original: more than 90 % of the cluster in use, and the service never waits"


def is_service(name: str) -> bool:
    """Whether a job belongs to the online service, not to the training below it."""
    return name.startswith("service")


def _format_seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s" if value < TENTHS_BELOW_S else f"{value:.0f} s"


def _format_longest(values: Iterable[float | None]) -> str:
    longest = max(math.inf if value is None else value for value in values)
    return "forever" if math.isinf(longest) else _format_seconds(longest)
