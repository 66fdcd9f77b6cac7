"""Evaluations: shards of validation data for the weights of one step, and metrics that do not depend on who computed.

An evaluation or prediction job is one evaluation, of which any worker may take any shard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import ConfigDict

from elasticdl.master.strategies.shards import ShardQueue
from elasticdl.model import reduction
from elasticdl.spec.ids import WorkerId

MAX_RESULTS = 64


BestMetric = tuple[str, float, int]  # metric, value, step


@dataclass(slots=True)
class ExactSum:
    """An exact sum (Shewchuk's algorithm): the same in any order of the terms, in constant memory."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")

    partials: list[float] = field(default_factory=list)
    not_finite: float | None = None

    def add(self, value: float) -> None:
        if not math.isfinite(value):
            self.not_finite = value if self.not_finite is None else self.not_finite + value
            return
        count = 0
        for partial in self.partials:
            if abs(value) < abs(partial):
                value, partial = partial, value
            high = value + partial
            low = partial - (high - value)
            if low:
                self.partials[count] = low
                count += 1
            value = high
        self.partials[count:] = [value]

    @property
    def value(self) -> float:
        return math.fsum(self.partials) if self.not_finite is None else self.not_finite


@dataclass(slots=True)
class MetricSum:
    """The exact sums of the parts of one metric, from which its reduction computes the value."""

    values: list[ExactSum] = field(default_factory=list)
    weight: ExactSum = field(default_factory=ExactSum)

    def add(self, values: tuple[float, ...], weight: float) -> None:
        while len(self.values) < len(values):
            self.values.append(ExactSum())
        for total, value in zip(self.values, values, strict=False):
            total.add(value)
        self.weight.add(weight)

    @property
    def part(self) -> reduction.MetricPart:
        return [total.value for total in self.values], self.weight.value


@dataclass(slots=True)
class OpenEvaluation:
    """An evaluation of the weights of `step`, held by `holders`; None: any worker may take a shard."""

    step: int
    queue: ShardQueue
    holders: list[WorkerId] | None
    sums: dict[str, MetricSum] = field(default_factory=dict)

    def is_open_to(self, worker: WorkerId, steps: tuple[int, ...]) -> bool:
        if self.holders is None:
            return True
        return worker in self.holders and (not steps or self.step in steps)

    def add_sums(self, sums: tuple[tuple[str, tuple[float, ...], float], ...]) -> None:
        for metric, values, weight in sums:
            self.sums.setdefault(metric, MetricSum()).add(values, weight)

    def metrics(self) -> dict[str, float]:
        """The value of each metric; NaN where its parts cannot be reduced."""
        metrics: dict[str, float] = {}
        for key, metric_sum in sorted(self.sums.items()):
            try:
                metrics |= reduction.compute_results({key: metric_sum.part})
            except (KeyError, IndexError, ValueError, OverflowError):
                metrics[key.partition(reduction.SEPARATOR)[0]] = math.nan
        return metrics


@dataclass(slots=True)
class EvaluationState:
    """The open evaluations by step, and the newest results. A metric may be NaN."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")

    open: dict[int, OpenEvaluation] = field(default_factory=dict)
    results: dict[int, dict[str, float]] = field(default_factory=dict)  # step: metrics, oldest first
    next_lease: int = 1
    best: BestMetric | None = None

    @property
    def newest(self) -> int | None:
        return max(self.results, default=None)

    def finish_evaluation(
        self, evaluation: OpenEvaluation, watched_metric: str, *, lower_is_better: bool
    ) -> dict[str, float]:
        """Compute the result of a drained evaluation.

        `watched_metric` decides which result is the best; "": the default metric.
        """
        del self.open[evaluation.step]
        metrics = evaluation.metrics()
        self.results[evaluation.step] = metrics
        while len(self.results) > MAX_RESULTS:
            del self.results[min(self.results)]
        name = watched_metric or default_metric(metrics)
        lower_is_better = lower_is_better if watched_metric else is_lower_better(name)
        self.best = update_best(
            self.best, name, metrics.get(name, math.nan), evaluation.step, lower_is_better=lower_is_better
        )
        return metrics

    def remove_worker(self, worker: WorkerId) -> list[int]:
        """Give back the leases of a worker that is gone. Returns the abandoned steps: no worker holds their weights."""
        abandoned = []
        for evaluation in list(self.open.values()):
            evaluation.queue.release(worker)
            if evaluation.holders is not None and worker in evaluation.holders:
                evaluation.holders.remove(worker)
                if not evaluation.holders:
                    del self.open[evaluation.step]
                    abandoned.append(evaluation.step)
        return abandoned


_LOWER_IS_BETTER = ("loss", "error", "mse", "mae", "rmse", "perplexity")


def default_metric(metrics: dict[str, float]) -> str:
    """The metric that most users look at: the accuracy, otherwise the first by name."""
    return "accuracy" if "accuracy" in metrics else min(metrics.keys() - {reduction.BAD_ROWS}, default="")


def is_lower_better(metric: str) -> bool:
    """Whether smaller values of a metric are better, judging by its name."""
    return any(word in metric.lower() for word in _LOWER_IS_BETTER)


def update_best(
    best: BestMetric | None, name: str, value: float, step: int, *, lower_is_better: bool
) -> BestMetric | None:
    """The better of the best so far and this value."""
    if math.isnan(value) or not name:
        return best
    sign = -1 if lower_is_better else 1
    return (name, value, step) if best is None or sign * value > sign * best[1] else best
