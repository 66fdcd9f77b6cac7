"""Workloads of which only size and duration were recorded; how they scale is assumed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.errors import DataError, SpecError
from elasticdl.scheduler.interface import BatchConfig, Floats, RateModel
from elasticdl.sim.interface import JobReport, WorkersPerNode, Workload
from elasticdl.sim.traces.trace import TraceJob


class ConstantRateWorkload(Workload):
    """An amount of work at a constant rate; subclasses set `_rate` when it is placed."""

    def __init__(self, work: float) -> None:
        self._total = self._remaining = work
        self._rate = 0.0

    @property
    def is_done(self) -> bool:
        return self._remaining <= 0

    def rate(self) -> float:
        return self._rate

    def work_to_next_change(self) -> float:
        return self._remaining

    def advance(self, work: float) -> bool:
        self._remaining = 0.0 if work >= self._remaining - 1e-9 else self._remaining - work
        return False


@dataclass(frozen=True, slots=True)
class ScalingAssumption:
    """How jobs without measurements are assumed to scale: linearly up to their recorded size, less beyond it."""

    efficiency: float = 0.8  # of each worker beyond the recorded size
    max_scale: float = 2.0  # jobs can use up to this many times their recorded size

    def __post_init__(self) -> None:
        if not 0 <= self.efficiency <= 1:
            raise SpecError(f"efficiency: expected 0 to 1, received {self.efficiency}")
        if not 1 <= self.max_scale < math.inf:
            raise SpecError(f"max_scale: expected 1 or more, received {self.max_scale}")

    def max_size(self, size: int) -> int:
        return int(size * self.max_scale)


@dataclass(frozen=True, slots=True)
class AssumedScalingModel(RateModel):
    """Rates relative to the recorded size: seconds of its work per second."""

    size: int
    efficiency: float

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        counts = np.asarray(workers, float)
        rates: Floats = (
            np.minimum(counts, self.size) + self.efficiency * np.maximum(counts - self.size, 0)
        ) / self.size
        return rates

    def rate(self, workers: float) -> float:
        return (min(workers, self.size) + self.efficiency * max(workers - self.size, 0)) / self.size

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        return None


class RecordedWorkload(ConstantRateWorkload):
    """A job of which only size and duration were recorded; its work is its duration with that size, in seconds."""

    def __init__(self, name: str, size: int, duration_s: float, scaling: ScalingAssumption) -> None:
        if not 0 < duration_s < math.inf:
            raise DataError(f"job of {name}: expected a duration above 0 s, received {duration_s}")
        super().__init__(duration_s)
        self._name = name
        self._model = AssumedScalingModel(size, scaling.efficiency)
        self._max_size = scaling.max_size(size)

    @property
    def name(self) -> str:
        return self._name

    def place(self, placement: WorkersPerNode, kind: str, batch: BatchConfig | None) -> None:
        self._rate = self._model.rate(sum(placement))

    def report(self) -> JobReport:
        return JobReport(rates=self._model, work_left=self._remaining, work_done=self._total - self._remaining)

    def isolated_duration_s(self, workers: float) -> float:
        return self._total / self._model.rate(min(workers, self._max_size))


def recorded_job(
    name: str, submitted_at: float, family: str, size: int, duration_s: float, scaling: ScalingAssumption
) -> TraceJob:
    """Returns a job that needs at least one worker and can use at most `max_scale` times its size."""
    return TraceJob(
        name, submitted_at, RecordedWorkload(family, size, duration_s, scaling), size, 1, scaling.max_size(size)
    )
