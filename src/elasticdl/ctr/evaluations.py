"""The evaluations of a job, read from its event log: a step and its metrics, as the master wrote them down."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

KIND = "evaluation"


@dataclass(frozen=True, slots=True)
class Evaluation:
    at: float  # when it was over
    step: int
    metrics: Mapping[str, float]


def found(events: Iterable[Mapping[str, Any]]) -> list[Evaluation]:
    """By step, each once: a job that went on from a checkpoint may evaluate a step again, and the last word counts.

    Those that nobody finished have no metrics, and are left out.
    """
    by_step: dict[int, Evaluation] = {}
    for event in events:
        if event.get("kind") != KIND:
            continue
        metrics = _metrics(str(event.get("reason") or ""))
        if metrics:
            step = int(event.get("step") or 0)
            by_step[step] = Evaluation(float(event.get("at") or 0.0), step, metrics)
    return [by_step[step] for step in sorted(by_step)]


def _metrics(text: str) -> dict[str, float]:
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
