"""Synthetic traces: Poisson arrivals, with sizes and durations as in Gavel's evaluation, determined by a seed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from elasticdl.errors import SpecError
from elasticdl.sim.traces import recorded
from elasticdl.sim.traces.recorded import ScalingAssumption
from elasticdl.sim.traces.trace import TraceJob

SIZE_PROBABILITIES = ((1, 0.70), (2, 0.125), (4, 0.125), (8, 0.05))
"""70 % one device, 25 % two or four, 5 % eight."""


@dataclass(frozen=True, slots=True)
class PoissonArrivals:
    """A number of jobs, and how many are submitted per hour on average."""

    jobs: int = 100
    per_hour: float = 12.0
    seed: int = 0
    duration_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise SpecError(f"jobs: expected 1 or more, received {self.jobs}")
        if self.seed < 0:
            raise SpecError(f"seed: expected 0 or more, received {self.seed}")
        for name, value in (("per_hour", self.per_hour), ("scale", self.duration_scale)):
            if not 0 < value < math.inf:
                raise SpecError(f"{name}: expected a number above 0, received {value}")


@dataclass(frozen=True, slots=True)
class SampledJob:
    """One job, before its workload is chosen."""

    number: int
    submitted_s: float
    size: int
    duration_s: float
    random_choice: float  # uniform from 0 to 1, for further choices


def sample_jobs(arrivals: PoissonArrivals) -> Iterator[SampledJob]:
    """Yields jobs of 10^x minutes, x from 1.5 to 3 (80 %) or 3 to 4. The first is submitted at 0."""
    rng = np.random.default_rng(arrivals.seed)
    sizes, probabilities = zip(*SIZE_PROBABILITIES, strict=True)
    submitted_s = 0.0
    for number in range(arrivals.jobs):
        size = int(rng.choice(sizes, p=probabilities))
        exponent = rng.uniform(1.5, 3.0) if rng.random() < 0.8 else rng.uniform(3.0, 4.0)
        yield SampledJob(
            number, submitted_s, size, 60.0 * 10.0**exponent * arrivals.duration_scale, float(rng.random())
        )
        submitted_s += rng.exponential(3600.0 / arrivals.per_hour)


def synthesize_jobs(arrivals: PoissonArrivals, scaling: ScalingAssumption) -> Iterator[TraceJob]:
    for sample in sample_jobs(arrivals):
        yield recorded.recorded_job(
            f"job-{sample.number:04}", sample.submitted_s, f"{sample.size}-gpu", sample.size, sample.duration_s, scaling
        )
