"""Rates of a job as ElasticDL trains it: a global batch of logical ranks, several of them one after the other.

A pass is always one global batch, whatever the workers: the one that has most of the logical ranks computes
ceil(ranks / workers) of them, so that 3 workers of 4 ranks are no faster than 2. A larger batch is k passes. Pollux
(`models.goodput`) spreads a larger batch over the workers instead, which would expect too much of it where every pass
has a cost of its own. Work is counted in steps of one global batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.scheduler.interface import Batch, Floats
from elasticdl.scheduler.models.goodput import gain
from elasticdl.scheduler.models.throughput import Throughput
from elasticdl.scheduler.snapshot import Noise


def scales_up_to(most: int) -> tuple[int, ...]:
    """1, 2, 3, 4, 6, 8, 12, … : coarse, so that a little more noise is no reason for another batch."""
    powers = [1 << power for power in range(most.bit_length())]
    return tuple(sorted({one for power in powers for one in (power, power + power // 2) if one <= most}))


@dataclass(frozen=True)
class LogicalBatch:
    """The best of some scales for each number of workers; with one scale, a job whose batch is its owner's."""

    throughput: Throughput
    global_batch: int
    logical_ranks: int
    scales: tuple[int, ...] = (1,)
    noise: Noise | None = None  # None: a larger batch is worth as much as its records

    def at(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        counts = np.asarray(workers)
        best: Floats = self._all(counts, np.asarray(nodes)).max(axis=0)
        return np.where(counts > 0, best, 0.0)

    def batch(self, workers: int, nodes: int, kind: str = "") -> Batch | None:
        if len(self.scales) == 1:
            return None
        scale = self.scales[int(self._all(np.array([workers]), np.array([nodes])).argmax())]
        return Batch(-(-self.global_batch // workers), scale, float(self._gain(scale)))

    def _all(self, workers: Floats, nodes: Floats) -> Floats:
        """Work a second, by scale and number of workers."""
        some = np.maximum(workers, 1)
        local = np.ceil(np.ceil(self.logical_ranks / some) * self.global_batch / self.logical_ranks)
        scales = np.array(self.scales, float).reshape(-1, *[1] * some.ndim)
        step_s = self.throughput.step_s(some, np.maximum(nodes, 1), local, scales)
        rates: Floats = self._gain(scales) / step_s
        return rates

    def _gain(self, scale: ArrayLike) -> Floats:
        return np.asarray(scale, float) if self.noise is None else gain(self.noise, scale)
