"""The table of policies: its columns, and how their numbers read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elasticdl.sim.outcome import Outcome


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 3 * 3600 else f"{seconds / 3600:.2f} h"


def short_time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _number(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{value:.2f}"


@dataclass(frozen=True)
class Column:
    """`is_better`: min or max of all is the best; None: neither is."""

    title: str
    value: Callable[[Outcome], float]
    text: Callable[[float], str]
    is_better: Callable[[list[float]], float] | None = min

    def best(self, values: Sequence[float]) -> float | None:
        finite = [value for value in values if math.isfinite(value)]
        return self.is_better(finite) if self.is_better and finite else None


COLUMNS = (
    Column("jobs", lambda one: one.numbers.jobs, lambda value: f"{value:.0f}", None),
    Column("mean JCT", lambda one: one.numbers.mean_jct_s, duration),
    Column("p50", lambda one: one.numbers.p50_jct_s, duration),
    Column("p90", lambda one: one.numbers.p90_jct_s, duration),
    Column("p99", lambda one: one.numbers.p99_jct_s, duration),
    Column("makespan", lambda one: one.numbers.makespan_s, duration),
    Column("queueing", lambda one: one.numbers.queueing_s, duration),
    Column("in use", lambda one: one.numbers.utilisation, lambda value: f"{value:.1%}", None),
    Column("restarts", lambda one: one.numbers.restarts, _number),
    Column("worst fairness", lambda one: one.numbers.worst_fairness, _number),
    Column("mean fairness", lambda one: one.numbers.mean_fairness, _number),
    Column("policy time", lambda one: one.timing.policy_s, short_time, None),
    Column("slowest", lambda one: one.timing.slowest_s, short_time, None),
)


def cells(outcome: Outcome) -> list[str]:
    return [column.text(column.value(outcome)) for column in COLUMNS]
