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

from elasticdl.scheduler.interface import Batch, Floats
from elasticdl.scheduler.models.throughput import Throughput
from elasticdl.scheduler.snapshot import Noise

Counts = NDArray[np.int64]

SAMPLES = 50  # batch sizes that are tried, in geometric steps …
FEWER = 24  # … and where many jobs are compared: the best is flat
_EPSILON = 1e-8
_BLOCK = 256  # jobs computed at once: what they need stays in the cache


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
        return self.batch_of(int(local[0]), int(passes[0]), workers)

    def batch_of(self, local: int, passes: int, workers: int) -> Batch:
        """With the learning rate of AdaScale."""
        return Batch(local, passes, float(gain(self.noise, local * passes * workers / self.limits.initial)))

    def _best(self, workers: Floats, nodes: Floats) -> tuple[Floats, Floats, Floats]:
        """Goodput, local batch and passes for each."""
        values = np.array(_numbers(self))[:, None, None]
        rates, local, passes = _best(values, workers.reshape(1, -1), nodes.reshape(1, -1))
        return rates.reshape(workers.shape), local.reshape(workers.shape), passes.reshape(workers.shape)


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


def tables(jobs: Sequence[Goodput], workers: Sequence[Counts], nodes: Sequence[Counts]) -> list[Floats]:
    """Of many jobs at once, each with its own numbers of workers: rates, and the batches (local, passes) of them."""
    if not jobs:
        return []
    width = max(len(some) for some in workers)
    counts, spreads = np.zeros((len(jobs), width)), np.ones((len(jobs), width))
    for row, (some, where) in enumerate(zip(workers, nodes, strict=True)):
        counts[row, : len(some)], spreads[row, : len(some)] = some, where
    values = np.array([_numbers(job) for job in jobs]).T[:, :, None]
    found = np.empty((3, *counts.shape))
    for start in range(0, len(jobs), _BLOCK):
        part = slice(start, start + _BLOCK)
        found[:, part] = _best(values[:, part], counts[part], spreads[part], FEWER)
    return [found[:, row, : len(some)] for row, some in enumerate(workers)]


def _numbers(job: Goodput) -> tuple[float, ...]:
    times, limits, noise = job.throughput, job.limits, job.noise
    grad_sync = times.alpha_grad, times.beta_grad, times.alpha_nodes, times.beta_nodes, times.alpha_local
    known = limits.initial, limits.maximum, limits.local_minimum, limits.local_maximum
    return (*grad_sync, times.beta_local, times.gamma, noise.square, noise.variance, *known)


def _best(values: Floats, workers: Floats, nodes: Floats, samples: int = SAMPLES) -> tuple[Floats, Floats, Floats]:
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
    rates = gains / Throughput(*times).step_s(some, np.maximum(nodes, 1), local, passes)
    possible = (local >= local_minimum) & (local <= local_maximum) & (workers > 0)
    rates = np.where(possible, rates, 0.0)
    best = np.argmax(rates, axis=0)[None]
    local = np.minimum(local, np.maximum(np.floor(maximum / (some * passes)), 1))
    return tuple(np.take_along_axis(one, best, axis=0)[0] for one in (rates, local, passes))
