"""The columns of the table of policies, and how their numbers are formatted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elasticdl.sim.results.outcome import SimulationOutcome


def format_duration(seconds: float) -> str:
    """Formats seconds with three digits and a unit."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 3 * 3600 else f"{seconds / 3600:.2f} h"


def format_short_duration(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _format_number(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{value:.2f}"


@dataclass(frozen=True)
class PolicyColumn:
    """A column of the table. `choose_best` is min or max; None: no value is the best."""

    title: str
    value: Callable[[SimulationOutcome], float]
    format: Callable[[float], str]
    choose_best: Callable[[list[float]], float] | None = min

    def best_of(self, values: Sequence[float]) -> float | None:
        finite = [value for value in values if math.isfinite(value)]
        return self.choose_best(finite) if self.choose_best and finite else None


COLUMNS = (
    PolicyColumn("jobs", lambda outcome: outcome.metrics.jobs, lambda value: f"{value:.0f}", None),
    PolicyColumn("mean JCT", lambda outcome: outcome.metrics.mean_jct_s, format_duration),
    PolicyColumn("p50", lambda outcome: outcome.metrics.p50_jct_s, format_duration),
    PolicyColumn("p90", lambda outcome: outcome.metrics.p90_jct_s, format_duration),
    PolicyColumn("p99", lambda outcome: outcome.metrics.p99_jct_s, format_duration),
    PolicyColumn("makespan", lambda outcome: outcome.metrics.makespan_s, format_duration),
    PolicyColumn("queueing", lambda outcome: outcome.metrics.queueing_s, format_duration),
    PolicyColumn("in use", lambda outcome: outcome.metrics.utilization, lambda value: f"{value:.1%}", None),
    PolicyColumn("restarts", lambda outcome: outcome.metrics.restarts, _format_number),
    PolicyColumn("worst fairness", lambda outcome: outcome.metrics.worst_fairness, _format_number),
    PolicyColumn("mean fairness", lambda outcome: outcome.metrics.mean_fairness, _format_number),
    PolicyColumn("policy time", lambda outcome: outcome.timing.policy_s, format_short_duration, None),
    PolicyColumn("slowest", lambda outcome: outcome.timing.max_policy_s, format_short_duration, None),
)


def format_row(outcome: SimulationOutcome) -> list[str]:
    return [column.format(column.value(outcome)) for column in COLUMNS]
