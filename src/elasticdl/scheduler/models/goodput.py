"""Goodput (Pollux, OSDI'21): records per second times the value of a record in a batch of that size.

A batch of M records instead of the initial M0 makes gain(M) = (v + g) / (v/S + g) steps' worth of progress, with
S = M/M0, g = |gradient|² and v the trace of its covariance at M0: a lot while noise prevails, and no more than a step
once it does not. Work is counted in steps of the initial batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elasticdl.scheduler.interface import BatchConfig, Floats, RateModel
from elasticdl.scheduler.models.throughput import ThroughputModel
from elasticdl.scheduler.snapshot import GradientNoise

Counts = NDArray[np.int64]

BATCH_SAMPLES = 50  # batch sizes to try, in geometric steps
COARSE_BATCH_SAMPLES = 24  # fewer if many jobs are compared, because the optimum is flat
_EPSILON = 1e-8
_BLOCK = 256  # jobs computed at once, so that their arrays stay in the cache


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The batches a job can train with."""

    initial: int  # of all workers together
    maximum: int
    local_minimum: int = 1  # of one worker in one pass
    local_maximum: int = 1 << 30


def gain_ratio(noise: GradientNoise, scale: ArrayLike) -> Floats:
    """Returns the progress of one step with a batch `scale` times the initial one, in steps of the initial batch."""
    scale = np.asarray(scale, float)
    remaining_noise = noise.gradient_variance / scale + noise.gradient_norm_sq
    return np.where(
        remaining_noise > 0,
        (noise.gradient_variance + noise.gradient_norm_sq) / np.where(remaining_noise > 0, remaining_noise, 1.0),
        1.0,
    )


def split_batch(total: ArrayLike, workers: ArrayLike, limits: BatchLimits) -> tuple[Floats, Floats]:
    """Returns (records of one worker in one pass, passes) that make about `total` records with this many workers.

    A single worker makes two passes if the batch is above the initial one, because noise is measured between passes.
    """
    total, workers = np.asarray(total, float), np.asarray(workers)
    per_worker = np.ceil(total / workers - _EPSILON)
    passes = np.ceil(per_worker / limits.local_maximum - _EPSILON)
    passes = np.where((workers == 1) & (total > limits.initial + _EPSILON), np.maximum(passes, 2), passes)
    local = np.ceil(per_worker / passes - _EPSILON)
    return np.minimum(local, np.floor(limits.maximum / (workers * passes))), passes


@dataclass(frozen=True)
class AdaptiveBatchModel(RateModel):
    """The rates of a job that trains with the best batch for its workers."""

    throughput: ThroughputModel
    noise: GradientNoise
    limits: BatchLimits

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        return self._best_batches_for(np.asarray(workers), np.asarray(nodes))[0]

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        _, local, passes = self._best_batches_for(np.array([workers]), np.array([nodes]))
        return self.batch_config(int(local[0]), int(passes[0]), workers)

    def batch_config(self, local: int, passes: int, workers: int) -> BatchConfig:
        """Returns the batch with AdaScale's learning rate."""
        return BatchConfig(local, passes, float(gain_ratio(self.noise, local * passes * workers / self.limits.initial)))

    def _best_batches_for(self, workers: Floats, nodes: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns goodput, local batch and passes for each pair of workers and nodes."""
        values = np.array(_parameters(self))[:, None, None]
        rates, local, passes = _best_batches(values, workers.reshape(1, -1), nodes.reshape(1, -1))
        return rates.reshape(workers.shape), local.reshape(workers.shape), passes.reshape(workers.shape)


@dataclass(frozen=True)
class FixedBatchModel(RateModel):
    """The rates of a job whose batch is the user's."""

    throughput: ThroughputModel
    noise: GradientNoise
    limits: BatchLimits
    total_batch: int

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        workers, nodes = np.asarray(workers), np.maximum(np.asarray(nodes), 1)
        active_workers = np.maximum(workers, 1)
        local, passes = split_batch(self.total_batch, active_workers, self.limits)
        scale = local * passes * active_workers / self.limits.initial
        return np.where(
            workers > 0,
            gain_ratio(self.noise, scale) / self.throughput.step_s(active_workers, nodes, local, passes),
            0.0,
        )

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        local, passes = split_batch(self.total_batch, workers, self.limits)
        scale = float(local * passes * workers / self.limits.initial)
        return BatchConfig(int(local), int(passes), float(gain_ratio(self.noise, scale)))


def goodput_tables(
    jobs: Sequence[AdaptiveBatchModel], workers: Sequence[Counts], nodes: Sequence[Counts]
) -> list[Floats]:
    """Computes many jobs at once, each with its own worker counts: arrays of rates and batches (local, passes)."""
    if not jobs:
        return []
    width = max(len(sizes) for sizes in workers)
    counts, spreads = np.zeros((len(jobs), width)), np.ones((len(jobs), width))
    for row, (sizes, spread) in enumerate(zip(workers, nodes, strict=True)):
        counts[row, : len(sizes)], spreads[row, : len(sizes)] = sizes, spread
    parameters = np.array([_parameters(job) for job in jobs]).T[:, :, None]
    tables = np.empty((3, *counts.shape))
    for start in range(0, len(jobs), _BLOCK):
        block = slice(start, start + _BLOCK)
        tables[:, block] = _best_batches(parameters[:, block], counts[block], spreads[block], COARSE_BATCH_SAMPLES)
    return [tables[:, row, : len(sizes)] for row, sizes in enumerate(workers)]


def _parameters(job: AdaptiveBatchModel) -> tuple[float, ...]:
    model, limits, noise = job.throughput, job.limits, job.noise
    grad_sync = model.alpha_grad, model.beta_grad, model.alpha_nodes, model.beta_nodes, model.alpha_local
    batch_limits = limits.initial, limits.maximum, limits.local_minimum, limits.local_maximum
    return (*grad_sync, model.beta_local, model.gamma, noise.gradient_norm_sq, noise.gradient_variance, *batch_limits)


def _best_batches(
    parameters: Floats, workers: Floats, nodes: Floats, samples: int = BATCH_SAMPLES
) -> tuple[Floats, Floats, Floats]:
    """Returns goodput, local batch and passes by job (rows) and worker count (columns); see `_parameters`."""
    *times, norm_sq, variance, initial, maximum, local_minimum, local_maximum = parameters
    active_workers = np.maximum(workers, 1)
    min_total = np.minimum(np.maximum(initial, local_minimum * active_workers), maximum)
    total = min_total * (maximum / min_total) ** np.linspace(0.0, 1.0, samples)[:, None, None]
    per_worker = total / active_workers
    passes = np.ceil(per_worker / local_maximum - _EPSILON)
    passes = np.where((active_workers == 1) & (per_worker > initial + _EPSILON), np.maximum(passes, 2), passes)
    local = np.ceil(per_worker / passes - _EPSILON)
    scale = local * passes * active_workers / initial
    remaining_noise = variance / scale + norm_sq
    gains = np.where(
        remaining_noise > 0, (variance + norm_sq) / np.where(remaining_noise > 0, remaining_noise, 1.0), 1.0
    )
    rates = gains / ThroughputModel(*times).step_s(active_workers, np.maximum(nodes, 1), local, passes)
    possible = (local >= local_minimum) & (local <= local_maximum) & (workers > 0)
    rates = np.where(possible, rates, 0.0)
    best = np.argmax(rates, axis=0)[None]
    local = np.minimum(local, np.maximum(np.floor(maximum / (active_workers * passes)), 1))
    return tuple(np.take_along_axis(table, best, axis=0)[0] for table in (rates, local, passes))


def candidate_batch_scales(max_scale: int) -> tuple[int, ...]:
    """Returns 1, 2, 3, 4, 6, 8, 12, …: coarse, so that a little more noise does not change the batch."""
    powers = [1 << power for power in range(max_scale.bit_length())]
    return tuple(sorted({scale for power in powers for scale in (power, power + power // 2) if scale <= max_scale}))


@dataclass(frozen=True)
class LogicalBatchModel(RateModel):
    """The rates of an ElasticDL job with logical ranks; the best of some batch scales for each number of workers.

    A pass is always one global batch, whatever the workers: the worker with most of the logical ranks computes
    ceil(ranks / workers) of them, so that 3 workers with 4 ranks are no faster than 2. A batch of scale k is k passes.
    Pollux (`AdaptiveBatchModel`) divides a larger batch among the workers instead, which would overestimate these jobs
    where every pass has a fixed cost. With one scale, the batch is the user's.
    """

    throughput: ThroughputModel
    global_batch: int
    logical_ranks: int
    scales: tuple[int, ...] = (1,)
    noise: GradientNoise | None = None  # None: a larger batch is worth its number of records

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        counts = np.asarray(workers)
        best: Floats = self._rates_by_scale(counts, np.asarray(nodes)).max(axis=0)
        return np.where(counts > 0, best, 0.0)

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        if len(self.scales) == 1:
            return None
        scale = self.scales[int(self._rates_by_scale(np.array([workers]), np.array([nodes])).argmax())]
        return BatchConfig(-(-self.global_batch // workers), scale, float(self._gain(scale)))

    def _rates_by_scale(self, workers: Floats, nodes: Floats) -> Floats:
        """Returns the work per second by scale and number of workers."""
        active_workers = np.maximum(workers, 1)
        local = np.ceil(np.ceil(self.logical_ranks / active_workers) * self.global_batch / self.logical_ranks)
        scales = np.array(self.scales, float).reshape(-1, *[1] * active_workers.ndim)
        step_s = self.throughput.step_s(active_workers, np.maximum(nodes, 1), local, scales)
        rates: Floats = self._gain(scales) / step_s
        return rates

    def _gain(self, scale: ArrayLike) -> Floats:
        return np.asarray(scale, float) if self.noise is None else gain_ratio(self.noise, scale)
