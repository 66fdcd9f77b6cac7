"""The story of a job as plain values: who worked from when to when, how each ended, what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elasticdl.spec.directory import JobDirectory

# What an event's kind tells about its worker; others tell nothing.
_STARTED = ("launch", "start", "hello", "ready")
_JOINED = ("join", "enter")
_LEFT = ("left", "finish", "goodbye")
_LOST = ("lost", "preempt", "crash", "silent", "expel", "kill")


@dataclass(frozen=True, slots=True)
class Span:
    """One life of a worker. `joined_at` is when it began to train; `end` is "", "left", "preempted" or "failed"."""

    worker: str
    started_at: float
    joined_at: float | None
    ended_at: float | None
    end: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """A measured value over wall-clock time."""

    at: tuple[float, ...]
    value: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Story:
    name: str
    started_at: float
    ended_at: float
    spans: tuple[Span, ...]
    loss: Curve
    speed: Curve
    metrics: Mapping[str, Curve]
    master_restarts: tuple[float, ...]


def tell(name: str, events: Sequence[Mapping[str, Any]], curves: Mapping[str, Curve], started_at: float) -> Story:
    """Put events and curves together; pure."""
    times = [float(event["at"]) for event in events if event.get("at")]
    times += [at for curve in curves.values() for at in (curve.at[:1] + curve.at[-1:])]
    empty = Curve((), ())
    return Story(
        name=name,
        started_at=min([started_at, *times]),
        ended_at=max([started_at, *times]),
        spans=spans(events),
        loss=curves.get("loss", empty),
        speed=curves.get("records_per_s", empty),
        metrics={tag: curve for tag, curve in curves.items() if tag not in ("loss", "records_per_s")},
        master_restarts=tuple(
            float(event["at"]) for event in events if "master" in _kind(event) and "restart" in _kind(event)
        ),
    )


def spans(events: Iterable[Mapping[str, Any]]) -> tuple[Span, ...]:
    """The lives of all workers, in the order they began."""
    open_spans: dict[str, Span] = {}
    closed: list[Span] = []
    for event in events:
        worker, kind, at = str(event.get("worker") or ""), _kind(event), float(event.get("at") or 0.0)
        if not worker or "master" in kind:
            continue
        span = open_spans.get(worker)
        if _has(kind, _LOST):
            reason = str(event.get("reason") or "")
            is_failure = "crash" in f"{kind} {reason}" or "fail" in f"{kind} {reason}"
            span = span or Span(worker, at, None, None, "")
            closed.append(replace(span, ended_at=at, end="failed" if is_failure else "preempted", reason=reason))
            open_spans.pop(worker, None)
        elif _has(kind, _LEFT):
            if span:
                closed.append(replace(span, ended_at=at, end="left", reason=str(event.get("reason") or "")))
                del open_spans[worker]
        elif _has(kind, _JOINED):
            span = span or Span(worker, at, None, None, "")
            open_spans[worker] = span if span.joined_at is not None else replace(span, joined_at=at)
        elif _has(kind, _STARTED) and span is None:
            open_spans[worker] = Span(worker, at, None, None, "")
    return tuple(sorted([*closed, *open_spans.values()], key=lambda span: (span.started_at, span.worker)))


def _kind(event: Mapping[str, Any]) -> str:
    return str(event.get("kind") or "").lower()


def _has(kind: str, parts: Sequence[str]) -> bool:
    return any(part in kind for part in parts)


def read_curves(directory: JobDirectory) -> dict[str, Curve]:
    """Every scalar in the job's TensorBoard files, by tag."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util import tensor_util

    points: dict[str, list[tuple[float, float]]] = {}
    for path in sorted(directory.tensorboard.glob("**/*tfevents*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                number = tensor_util.make_ndarray(value.tensor) if value.HasField("tensor") else value.simple_value
                points.setdefault(value.tag, []).append((event.wall_time, float(number)))
    return {tag: Curve(*map(tuple, zip(*sorted(found), strict=True))) for tag, found in points.items()}
