"""The evaluations of a job, read from its event log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

EVENT_KIND = "evaluation"


@dataclass(frozen=True, slots=True)
class LoggedEvaluation:
    finished_at: float  # when it was over
    step: int
    metrics: Mapping[str, float]


def read_evaluations(events: Iterable[Mapping[str, Any]]) -> list[LoggedEvaluation]:
    """By step, each once: a job that went on from a checkpoint may evaluate a step again, and the last word counts.

    Those that nobody finished have no metrics, and are left out.
    """
    by_step: dict[int, LoggedEvaluation] = {}
    for event in events:
        if event.get("kind") != EVENT_KIND:
            continue
        metrics = _parse_metrics(str(event.get("reason") or ""))
        if metrics:
            step = int(event.get("step") or 0)
            by_step[step] = LoggedEvaluation(float(event.get("at") or 0.0), step, metrics)
    return [by_step[step] for step in sorted(by_step)]


def _parse_metrics(text: str) -> dict[str, float]:
    """`auc 0.74915, logloss 0.487595`; nothing for any other text."""
    read: dict[str, float] = {}
    for part in text.split(", "):
        name, _, value = part.rpartition(" ")
        try:
            number = float(value)
        except ValueError:
            return {}
        if not name or " " in name:
            return {}
        if math.isfinite(number):
            read[name] = number
    return read
