"""Goodput (Pollux, OSDI'21): records a second times what a record is worth in a batch of that size.

A batch of M records instead of the initial M0 makes gain(M) = (v + g) / (v/S + g) steps' worth of progress, S = M/M0,
with g = |gradient|² and v the trace of its covariance at M0: much while noise prevails, nothing more once it does not.
Work is counted in steps of the initial batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elasticdl.scheduler.interface import BatchConfig, Floats
from elasticdl.scheduler.models.throughput import ThroughputModel
from elasticdl.scheduler.snapshot import GradientNoise

Counts = NDArray[np.int64]

BATCH_SAMPLES = 50  # batch sizes that are tried, in geometric steps …
COARSE_BATCH_SAMPLES = 24  # … and where many jobs are compared: the best is flat
_EPSILON = 1e-8
_BLOCK = 256  # jobs computed at once: what they need stays in the cache


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Which batches a job can train with."""

    initial: int  # of all workers together
    maximum: int
    local_minimum: int = 1  # of one worker, in one pass
    local_maximum: int = 1 << 30


def gain_ratio(noise: GradientNoise, scale: ArrayLike) -> Floats:
    """Progress of one step with a batch `scale` times the initial one, in steps of that."""
    scale = np.asarray(scale, float)
    rest = noise.gradient_variance / scale + noise.gradient_norm_sq
    return np.where(rest > 0, (noise.gradient_variance + noise.gradient_norm_sq) / np.where(rest > 0, rest, 1.0), 1.0)


def split_batch(total: ArrayLike, workers: ArrayLike, limits: BatchLimits) -> tuple[Floats, Floats]:
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
class AdaptiveBatchModel:
    """Rates of a job that trains with the best batch for its workers."""

    throughput: ThroughputModel
    noise: GradientNoise
    limits: BatchLimits

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        return self._best(np.asarray(workers), np.asarray(nodes))[0]

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        _, local, passes = self._best(np.array([workers]), np.array([nodes]))
        return self.batch_config(int(local[0]), int(passes[0]), workers)

    def batch_config(self, local: int, passes: int, workers: int) -> BatchConfig:
        """With the learning rate of AdaScale."""
        return BatchConfig(local, passes, float(gain_ratio(self.noise, local * passes * workers / self.limits.initial)))

    def _best(self, workers: Floats, nodes: Floats) -> tuple[Floats, Floats, Floats]:
        """Goodput, local batch and passes for each."""
        values = np.array(_parameters(self))[:, None, None]
        rates, local, passes = _best_batches(values, workers.reshape(1, -1), nodes.reshape(1, -1))
        return rates.reshape(workers.shape), local.reshape(workers.shape), passes.reshape(workers.shape)


@dataclass(frozen=True)
class FixedBatchModel:
    """Rates of a job whose batch is its owner's."""

    throughput: ThroughputModel
    noise: GradientNoise
    limits: BatchLimits
    total_batch: int

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        workers, nodes = np.asarray(workers), np.maximum(np.asarray(nodes), 1)
        some = np.maximum(workers, 1)
        local, passes = split_batch(self.total_batch, some, self.limits)
        scale = local * passes * some / self.limits.initial
        return np.where(
            workers > 0, gain_ratio(self.noise, scale) / self.throughput.step_s(some, nodes, local, passes), 0.0
        )

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        local, passes = split_batch(self.total_batch, workers, self.limits)
        scale = float(local * passes * workers / self.limits.initial)
        return BatchConfig(int(local), int(passes), float(gain_ratio(self.noise, scale)))


def goodput_tables(
    jobs: Sequence[AdaptiveBatchModel], workers: Sequence[Counts], nodes: Sequence[Counts]
) -> list[Floats]:
    """Of many jobs at once, each with its own numbers of workers: rates, and the batches (local, passes) of them."""
    if not jobs:
        return []
    width = max(len(some) for some in workers)
    counts, spreads = np.zeros((len(jobs), width)), np.ones((len(jobs), width))
    for row, (some, where) in enumerate(zip(workers, nodes, strict=True)):
        counts[row, : len(some)], spreads[row, : len(some)] = some, where
    values = np.array([_parameters(job) for job in jobs]).T[:, :, None]
    found = np.empty((3, *counts.shape))
    for start in range(0, len(jobs), _BLOCK):
        part = slice(start, start + _BLOCK)
        found[:, part] = _best_batches(values[:, part], counts[part], spreads[part], COARSE_BATCH_SAMPLES)
    return [found[:, row, : len(some)] for row, some in enumerate(workers)]


def _parameters(job: AdaptiveBatchModel) -> tuple[float, ...]:
    times, limits, noise = job.throughput, job.limits, job.noise
    grad_sync = times.alpha_grad, times.beta_grad, times.alpha_nodes, times.beta_nodes, times.alpha_local
    known = limits.initial, limits.maximum, limits.local_minimum, limits.local_maximum
    return (*grad_sync, times.beta_local, times.gamma, noise.gradient_norm_sq, noise.gradient_variance, *known)


def _best_batches(
    values: Floats, workers: Floats, nodes: Floats, samples: int = BATCH_SAMPLES
) -> tuple[Floats, Floats, Floats]:
    """Goodput, local batch and passes of jobs (rows) with so many workers (columns); `values` are `_numbers`."""
    *times, square, variance, initial, maximum, local_minimum, local_maximum = values
    some = np.maximum(workers, 1)
    least = np.minimum(np.maximum(initial, local_minimum * some), maximum)
    total = least * (maximum / least) ** np.linspace(0.0, 1.0, samples)[:, None, None]
    each = total / some
    passes = np.ceil(each / local_maximum - _EPSILON)
    passes = np.where((some == 1) & (each > initial + _EPSILON), np.maximum(passes, 2), passes)
    local = np.ceil(each / passes - _EPSILON)
    scale = local * passes * some / initial
    rest = variance / scale + square
    gains = np.where(rest > 0, (variance + square) / np.where(rest > 0, rest, 1.0), 1.0)
    rates = gains / ThroughputModel(*times).step_s(some, np.maximum(nodes, 1), local, passes)
    possible = (local >= local_minimum) & (local <= local_maximum) & (workers > 0)
    rates = np.where(possible, rates, 0.0)
    best = np.argmax(rates, axis=0)[None]
    local = np.minimum(local, np.maximum(np.floor(maximum / (some * passes)), 1))
    return tuple(np.take_along_axis(one, best, axis=0)[0] for one in (rates, local, passes))


def candidate_batch_scales(most: int) -> tuple[int, ...]:
    """1, 2, 3, 4, 6, 8, 12, … : coarse, so that a little more noise is no reason for another batch."""
    powers = [1 << power for power in range(most.bit_length())]
    return tuple(sorted({one for power in powers for one in (power, power + power // 2) if one <= most}))


@dataclass(frozen=True)
class LogicalBatchModel:
    """The best of some scales for each number of workers; with one scale, a job whose batch is its owner's."""

    throughput: ThroughputModel
    global_batch: int
    logical_ranks: int
    scales: tuple[int, ...] = (1,)
    noise: GradientNoise | None = None  # None: a larger batch is worth as much as its records

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        counts = np.asarray(workers)
        best: Floats = self._all(counts, np.asarray(nodes)).max(axis=0)
        return np.where(counts > 0, best, 0.0)

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        if len(self.scales) == 1:
            return None
        scale = self.scales[int(self._all(np.array([workers]), np.array([nodes])).argmax())]
        return BatchConfig(-(-self.global_batch // workers), scale, float(self._gain(scale)))

    def _all(self, workers: Floats, nodes: Floats) -> Floats:
        """Work a second, by scale and number of workers."""
        some = np.maximum(workers, 1)
        local = np.ceil(np.ceil(self.logical_ranks / some) * self.global_batch / self.logical_ranks)
        scales = np.array(self.scales, float).reshape(-1, *[1] * some.ndim)
        step_s = self.throughput.step_s(some, np.maximum(nodes, 1), local, scales)
        rates: Floats = self._gain(scales) / step_s
        return rates

    def _gain(self, scale: ArrayLike) -> Floats:
        return np.asarray(scale, float) if self.noise is None else gain_ratio(self.noise, scale)
