"""The timeline of a job as plain values: when each worker trained, how it ended, what was measured."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elasticdl.errors import SpecError
from elasticdl.jobs import history
from elasticdl.reporting import prepare_figures
from elasticdl.reporting.event_files import PATTERN, read_events, scalar_of
from elasticdl.spec.directory import JobDirectory

LAUNCHED, JOINED, LEFT, LOST = "worker-launched", "worker-joined", "worker-left", "worker-lost"
# Curves the master draws itself; any other is a metric of the model.
_PROGRESS_TAGS = frozenset({"loss", "epoch/loss", "records_per_s", "learning_rate", "workers"})
RETURNED, MASTER_RESTARTED = "worker-returned", "master-restarted"


@dataclass(frozen=True, slots=True)
class WorkerLifetime:
    """One life of a worker. `joined_at` is when it began to train; `end` is "", "left", "preempted" or "failed"."""

    worker: str
    started_at: float
    joined_at: float | None
    ended_at: float | None
    end: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MetricCurve:
    """A measured value over wall-clock time, and at which step of the job each was measured."""

    times: tuple[float, ...]
    values: tuple[float, ...]
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class JobTimeline:
    name: str
    started_at: float
    ended_at: float
    worker_lifetimes: tuple[WorkerLifetime, ...]
    loss: MetricCurve
    speed: MetricCurve
    metrics: Mapping[str, MetricCurve]
    master_restarts: tuple[float, ...]


def build_timeline(
    name: str, events: Sequence[Mapping[str, Any]], curves: Mapping[str, MetricCurve], started_at: float
) -> JobTimeline:
    """Put events and curves together; points from before `started_at` belong to an earlier run of the job. Pure."""
    curves = {tag: _points_since(curve, started_at) for tag, curve in curves.items()}
    times = [float(event["at"]) for event in events if event.get("at")]
    times += [moment for curve in curves.values() for moment in (curve.times[:1] + curve.times[-1:])]
    empty = MetricCurve((), ())
    return JobTimeline(
        name=name,
        started_at=min([started_at, *times]),
        ended_at=max([started_at, *times]),
        worker_lifetimes=worker_lifetimes(events),
        loss=curves.get("loss", empty),
        speed=curves.get("records_per_s", empty),
        metrics={
            tag: curve for tag, curve in curves.items() if tag not in _PROGRESS_TAGS and not tag.startswith("ps/")
        },
        master_restarts=tuple(float(event["at"]) for event in events if event.get("kind") == MASTER_RESTARTED),
    )


def _points_since(curve: MetricCurve, started_at: float) -> MetricCurve:
    indices = [index for index, moment in enumerate(curve.times) if moment >= started_at]
    return MetricCurve(
        tuple(curve.times[index] for index in indices),
        tuple(curve.values[index] for index in indices),
        tuple(curve.steps[index] for index in indices) if curve.steps else (),
    )


def worker_lifetimes(events: Iterable[Mapping[str, Any]]) -> tuple[WorkerLifetime, ...]:
    """The lives of all workers, in the order they began."""
    lives: dict[str, WorkerLifetime] = {}
    ended: list[WorkerLifetime] = []
    for event in events:
        worker, kind, moment = str(event.get("replica") or ""), event.get("kind"), float(event.get("at") or 0.0)
        span = lives.get(worker) or WorkerLifetime(worker, moment, None, None, "")
        if kind in (LAUNCHED, RETURNED):
            lives[worker] = span
        elif kind == JOINED:
            lives[worker] = span if span.joined_at is not None else replace(span, joined_at=moment)
        elif kind in (LEFT, LOST):
            reason = str(event.get("reason") or "")
            how = "left" if kind == LEFT else "failed" if reason.startswith("crashed") else "preempted"
            ended.append(replace(span, ended_at=moment, end=how, reason=reason))
            lives.pop(worker, None)
    return tuple(sorted([*ended, *lives.values()], key=lambda span: (span.started_at, _natural_order(span.worker))))


def _natural_order(worker: str) -> tuple[int, str]:
    """worker-10 after worker-9."""
    number = worker.rpartition("-")[2]
    return (int(number) if number.isdigit() else 0, worker)


def read_curves(directory: JobDirectory) -> dict[str, MetricCurve]:
    """Every scalar in the job's TensorBoard files, by tag."""
    points: dict[str, list[tuple[float, float, int]]] = {}
    for path in sorted(directory.tensorboard.glob(f"**/{PATTERN}")):
        for event in read_events(path):
            for value in event.summary.value:
                if (number := scalar_of(value)) is not None:
                    points.setdefault(value.tag, []).append((event.wall_time, number, event.step))
    return {
        tag: MetricCurve(*map(tuple, zip(*sorted(points_of_tag), strict=True))) for tag, points_of_tag in points.items()
    }


def draw_timeline(directory: JobDirectory, path: Path) -> None:
    """Draw the job as it is known now."""
    prepare_figures("a timeline")
    from elasticdl.jobs import timeline_figure

    timeline = build_timeline(
        directory.root.name,
        history.read_events(directory),
        read_curves(directory),
        history.status_from_files(directory, is_alive=True).started_at,
    )
    timeline_figure.draw_figure(timeline, path)


def try_draw_timeline(directory: JobDirectory) -> None:
    """At the end of a job: a figure that cannot be drawn is a pity, not a failure. So is one without matplotlib."""
    try:
        draw_timeline(directory, directory.timeline)
    except (OSError, ValueError, SpecError) as exc:
        logging.getLogger("elasticdl").warning("no timeline: %s", exc)
