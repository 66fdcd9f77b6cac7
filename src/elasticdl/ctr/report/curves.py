"""Training curves over steps: loss, evaluations, and the number of workers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Points = tuple[tuple[int, float], ...]
"""Steps and what was measured there, by step."""

VALIDATION_PREFIX = "validation/"


@dataclass(frozen=True, slots=True)
class TrainingCurves:
    loss: Points = ()
    evaluations: Mapping[str, Points] = field(default_factory=dict)  # by metric: auc, logloss, …
    workers: Points = ()  # from each of these steps on, so many

    @property
    def last_step(self) -> int:
        curves = (self.loss, *self.evaluations.values(), self.workers)
        return max((curve[-1][0] for curve in curves if curve), default=0)


def collect_curves(
    curves: Mapping[str, Sequence[tuple[int, float, float]]], events: Iterable[Mapping[str, Any]]
) -> TrainingCurves:
    """`curves`: by tag, a step, a time and a value each. Of a step computed twice, the later."""
    drawn = {tag: _latest_by_step(found) for tag, found in curves.items()}
    return TrainingCurves(
        loss=drawn.get("loss", ()),
        evaluations={
            tag.removeprefix(VALIDATION_PREFIX): points
            for tag, points in drawn.items()
            if tag.startswith(VALIDATION_PREFIX)
        },
        workers=workers_by_step(events),
    )


def _latest_by_step(found: Sequence[tuple[int, float, float]]) -> Points:
    latest = {step: value for step, _, value in sorted(found, key=lambda one: one[1])}
    return tuple(sorted(latest.items()))


def workers_by_step(events: Iterable[Mapping[str, Any]]) -> Points:
    """How many were training from each step on. That all leave at the end is left out."""
    there: set[str] = set()
    counts: dict[int, float] = {}
    for event in events:
        kind, worker, step = event.get("kind"), str(event.get("worker") or ""), int(event.get("step") or 0)
        if kind == "started":  # a job that goes on from a checkpoint begins with nobody
            there.clear()
            continue
        if kind == "worker-joined":
            there.add(worker)
        elif kind in ("worker-left", "worker-lost") and worker in there:
            there.discard(worker)
        else:
            continue
        # What came after this step is computed again, if it was computed already.
        counts = {at: count for at, count in counts.items() if at < step} | {step: float(len(there))}
    points = sorted(counts.items())
    while points and not points[-1][1]:
        points.pop()
    kept: list[tuple[int, float]] = []
    for at, count in points:
        if not kept or kept[-1][1] != count:
            kept.append((at, count))
    return tuple(kept)
