"""Training curves over steps: loss, evaluations, and the number of workers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Points = tuple[tuple[int, float], ...]
"""Pairs of a step and a value, sorted by step."""

VALIDATION_PREFIX = "validation/"


@dataclass(frozen=True, slots=True)
class TrainingCurves:
    loss: Points = ()
    evaluations: Mapping[str, Points] = field(default_factory=dict)  # by metric, e.g. auc and logloss
    workers: Points = ()  # the number of workers from each of these steps on

    @property
    def last_step(self) -> int:
        curves = (self.loss, *self.evaluations.values(), self.workers)
        return max((curve[-1][0] for curve in curves if curve), default=0)


def collect_curves(
    curves: Mapping[str, Sequence[tuple[int, float, float]]], events: Iterable[Mapping[str, Any]]
) -> TrainingCurves:
    """Collects curves by tag from (step, time, value). If a step was computed twice, the later value counts."""
    points_by_tag = {tag: _latest_by_step(measured) for tag, measured in curves.items()}
    return TrainingCurves(
        loss=points_by_tag.get("loss", ()),
        evaluations={
            tag.removeprefix(VALIDATION_PREFIX): points
            for tag, points in points_by_tag.items()
            if tag.startswith(VALIDATION_PREFIX)
        },
        workers=workers_by_step(events),
    )


def _latest_by_step(measured: Sequence[tuple[int, float, float]]) -> Points:
    latest = {step: value for step, _, value in sorted(measured, key=lambda point: point[1])}
    return tuple(sorted(latest.items()))


def workers_by_step(events: Iterable[Mapping[str, Any]]) -> Points:
    """Returns how many workers trained from each step on, without those that leave at the end."""
    present: set[str] = set()
    counts: dict[int, float] = {}
    for event in events:
        kind, worker, step = event.get("kind"), str(event.get("replica") or ""), int(event.get("step") or 0)
        if kind == "started":  # a resumed job begins without workers
            present.clear()
            continue
        if kind == "worker-joined":
            present.add(worker)
        elif kind in ("worker-left", "worker-lost") and worker in present:
            present.discard(worker)
        else:
            continue
        # Later steps are computed again, even if they were computed before.
        counts = {earlier: count for earlier, count in counts.items() if earlier < step} | {step: float(len(present))}
    points = sorted(counts.items())
    while points and not points[-1][1]:
        points.pop()
    changes: list[tuple[int, float]] = []
    for step, count in points:
        if not changes or changes[-1][1] != count:
            changes.append((step, count))
    return tuple(changes)
