"""Goodput (Pollux, OSDI'21): records a second times what a record is worth in a batch of that size.

A batch of M records instead of the initial M0 makes gain(M) = (v + g) / (v/S + g) steps' worth of progress, S = M/M0,
with g = |gradient|² and v the trace of its covariance at M0: much while noise prevails, nothing more once it does not.
Work is counted in steps of the initial batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.scheduler.interface import Batch, Floats
from elasticdl.scheduler.models.throughput import Throughput
from elasticdl.scheduler.snapshot import Noise

SAMPLES = 50  # batch sizes that are tried, in geometric steps
_EPSILON = 1e-8


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Which batches a job can train with."""

    initial: int  # of all workers together
    maximum: int
    local_minimum: int = 1  # of one worker, in one pass
    local_maximum: int = 1 << 30


def gain(noise: Noise, scale: ArrayLike) -> Floats:
    """Progress of one step with a batch `scale` times the initial one, in steps of that."""
    scale = np.asarray(scale, float)
    rest = noise.variance / scale + noise.square
    return np.where(rest > 0, (noise.variance + noise.square) / np.where(rest > 0, rest, 1.0), 1.0)


def split(total: ArrayLike, workers: ArrayLike, limits: BatchLimits) -> tuple[Floats, Floats]:
    """(records of one worker in one pass, passes) that make about `total` with so many workers.

    One worker alone makes two passes where the batch is above the initial one: noise is measured between passes.
    """
    total, workers = np.asarray(total, float), np.asarray(workers)
    each = np.ceil(total / workers - _EPSILON)
    passes = np.ceil(each / limits.local_maximum - _EPSILON)
    passes = np.where((workers == 1) & (total > limits.initial + _EPSILON), np.maximum(passes, 2), passes)
    local = np.ceil(each / passes - _EPSILON)
    return np.minimum(local, np.floor(limits.maximum / (workers * passes))), passes


@dataclass(frozen=True)
class Goodput:
    """Rates of a job that trains with the best batch for its workers."""

    throughput: Throughput
    noise: Noise
    limits: BatchLimits

    def at(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        return self._best(np.asarray(workers), np.asarray(nodes))[0]

    def batch(self, workers: int, nodes: int, kind: str = "") -> Batch | None:
        _, local, passes = self._best(np.array([workers]), np.array([nodes]))
        scale = local[0] * passes[0] * workers / self.limits.initial
        return Batch(int(local[0]), int(passes[0]), float(gain(self.noise, scale)))

    def _best(self, workers: Floats, nodes: Floats) -> tuple[Floats, Floats, Floats]:
        """Goodput, local batch and passes for each."""
        limits, shape = self.limits, workers.shape
        workers, nodes = np.maximum(workers.ravel(), 0), np.maximum(nodes.ravel(), 1)
        some = np.maximum(workers, 1)
        least = np.minimum(np.maximum(limits.initial, limits.local_minimum * some), limits.maximum)
        steps = np.linspace(0.0, 1.0, SAMPLES)[:, None]
        total = least * (limits.maximum / least) ** steps
        each = total / some
        passes = np.ceil(each / limits.local_maximum - _EPSILON)
        passes = np.where((some == 1) & (each > limits.initial + _EPSILON), np.maximum(passes, 2), passes)
        local = np.ceil(each / passes - _EPSILON)
        real = local * passes * some
        rates = gain(self.noise, real / limits.initial) / self.throughput.step_s(some, nodes, local, passes)
        possible = (local >= limits.local_minimum) & (local <= limits.local_maximum) & (workers > 0)
        rates = np.where(possible, rates, 0.0)
        best = np.argmax(rates, axis=0), np.arange(rates.shape[1])
        local = np.minimum(local, np.maximum(np.floor(limits.maximum / (some * passes)), 1))
        return rates[best].reshape(shape), local[best].reshape(shape), passes[best].reshape(shape)


@dataclass(frozen=True)
class FixedBatch:
    """Rates of a job whose batch is its owner's."""

    throughput: Throughput
    noise: Noise
    limits: BatchLimits
    total: int

    def at(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        workers, nodes = np.asarray(workers), np.maximum(np.asarray(nodes), 1)
        some = np.maximum(workers, 1)
        local, passes = split(self.total, some, self.limits)
        scale = local * passes * some / self.limits.initial
        return np.where(workers > 0, gain(self.noise, scale) / self.throughput.step_s(some, nodes, local, passes), 0.0)

    def batch(self, workers: int, nodes: int, kind: str = "") -> Batch | None:
        local, passes = split(self.total, workers, self.limits)
        scale = float(local * passes * workers / self.limits.initial)
        return Batch(int(local), int(passes), float(gain(self.noise, scale)))


def tables(jobs: Sequence[Goodput], workers: Floats, nodes: Floats) -> Floats:
    """`at` of many jobs at once: a row of rates for each."""
    return np.stack([job.at(workers, nodes) for job in jobs]) if jobs else np.zeros((0, len(workers)))
