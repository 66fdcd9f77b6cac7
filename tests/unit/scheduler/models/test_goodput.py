"""Goodput: what a batch is worth, and which one is best."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.scheduler.models.goodput import (
    AdaptiveBatchModel,
    BatchLimits,
    FixedBatchModel,
    gain_ratio,
    goodput_tables,
    split_batch,
)
from elasticdl.scheduler.models.throughput import ThroughputModel
from elasticdl.scheduler.snapshot import GradientNoise

MODEL = ThroughputModel(0.05, 0.002, 0.2, 0.004, 0.04, 0.002, 1.8)
LIMITS = BatchLimits(initial=64, maximum=2048, local_minimum=8, local_maximum=256)
NOISE = GradientNoise(gradient_norm_sq=0.01, gradient_variance=0.1)
PLACES = [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4), (64, 16)]  # workers, nodes


def rate_of(workers: int, nodes: int, local: int, passes: int, noise: GradientNoise = NOISE) -> float:
    """Steps of the initial batch a second, by the formulas of the paper."""
    total = local * passes * workers
    phi = LIMITS.initial * noise.gradient_variance / noise.gradient_norm_sq
    efficiency = (phi + LIMITS.initial) / (phi + total)
    throughput = total / float(MODEL.step_s(workers, nodes, local, passes))
    return efficiency * throughput / LIMITS.initial


def best_by_trying_all(workers: int, nodes: int) -> float:
    rates = [0.0]
    for local in range(LIMITS.local_minimum, LIMITS.local_maximum + 1):
        for passes in range(1, LIMITS.maximum // (local * workers) + 1):
            is_measurable = workers > 1 or passes > 1 or local <= LIMITS.initial
            if local * passes * workers >= LIMITS.initial and is_measurable:
                rates.append(rate_of(workers, nodes, local, passes))
    return max(rates)


@pytest.mark.parametrize(
    ("scale", "noise", "expected"),
    [
        (1.0, NOISE, 1.0),
        (4.0, GradientNoise(1.0, 0.0), 1.0),  # no noise: a larger batch says nothing new
        (4.0, GradientNoise(0.0, 1.0), 4.0),  # nothing but noise: every record counts
        (4.0, GradientNoise(1.0, 1.0), 2.0 / 1.25),
        (4.0, GradientNoise(0.0, 0.0), 1.0),  # a gradient of 0
    ],
)
def test_the_gain_of_a_larger_batch(scale: float, noise: GradientNoise, expected: float) -> None:
    assert gain_ratio(noise, scale) == pytest.approx(expected)


def test_gain_over_scale_is_the_efficiency_of_the_paper() -> None:
    scales = np.array([1.0, 2.0, 8.0, 32.0])
    phi = LIMITS.initial * NOISE.gradient_variance / NOISE.gradient_norm_sq

    assert gain_ratio(NOISE, scales) / scales == pytest.approx((phi + 64) / (phi + 64 * scales))


@pytest.mark.parametrize(
    ("total", "workers", "expected"),
    [
        (64, 1, (64, 1)),
        (128, 1, (64, 2)),  # above the initial one: two passes, though one would do
        (128, 4, (32, 1)),
        (130, 4, (33, 1)),
        (2048, 4, (256, 2)),
        (2048, 2, (256, 4)),
        (2048, 3, (228, 3)),  # 3 · 228 · 3 would be 2052, more than the maximum
    ],
)
def test_a_total_batch_is_split_among_workers_and_passes(total: int, workers: int, expected: tuple[int, int]) -> None:
    local, passes = split_batch(total, workers, LIMITS)

    assert passes == expected[1]
    assert local == min(expected[0], LIMITS.maximum // (workers * expected[1]))
    assert local * passes * workers <= LIMITS.maximum


@pytest.mark.parametrize(("workers", "nodes"), PLACES)
def test_the_best_batch_is_nearly_the_best_of_all(workers: int, nodes: int) -> None:
    """Of thousands of sizes only fifty are tried."""
    best = best_by_trying_all(workers, nodes)

    rates = float(AdaptiveBatchModel(MODEL, NOISE, LIMITS).work_per_s(workers, nodes))

    assert 0.97 * best <= rates <= 1.03 * best


@pytest.mark.parametrize(("workers", "nodes"), PLACES)
def test_the_batch_reaches_its_rate_and_keeps_all_limits(workers: int, nodes: int) -> None:
    model = AdaptiveBatchModel(MODEL, NOISE, LIMITS)
    batch = model.batch(workers, nodes)

    assert batch is not None
    assert LIMITS.local_minimum <= batch.local_batch <= LIMITS.local_maximum
    assert LIMITS.initial <= batch.total_records(workers) <= LIMITS.maximum
    assert rate_of(workers, nodes, batch.local_batch, batch.passes) == pytest.approx(
        float(model.work_per_s(workers, nodes)), rel=0.03
    )
    assert batch.learning_rate_scale == pytest.approx(
        float(gain_ratio(NOISE, batch.total_records(workers) / LIMITS.initial))
    )


def test_more_noise_means_larger_batches() -> None:
    batches = [
        AdaptiveBatchModel(MODEL, GradientNoise(0.01, variance), LIMITS).batch(8, 2)
        for variance in (0.0, 0.01, 0.1, 10.0)
    ]
    totals = [batch.total_records(8) for batch in batches if batch is not None]

    assert totals == sorted(totals) and totals[0] < totals[-1]
    assert totals[0] == LIMITS.initial


def test_no_workers_and_too_many_for_the_smallest_batch_do_nothing() -> None:
    model = AdaptiveBatchModel(MODEL, NOISE, LIMITS)

    assert model.work_per_s(0, 0) == 0.0
    assert model.work_per_s(2048 // 8, 64) > 0.0
    assert model.work_per_s(2048 // 8 + 100, 64) == 0.0


def test_arrays_have_the_shape_and_the_answers_of_their_elements() -> None:
    model = AdaptiveBatchModel(MODEL, NOISE, LIMITS)
    workers, nodes = np.array([[0, 1, 2], [4, 8, 16]]), np.array([[0, 1, 1], [1, 2, 4]])

    together = model.work_per_s(workers, nodes)

    assert together.shape == (2, 3)
    each = [
        float(model.work_per_s(*expected_table)) for expected_table in zip(workers.ravel(), nodes.ravel(), strict=True)
    ]
    assert together.ravel() == pytest.approx(each)


def test_many_jobs_at_once_have_the_answers_of_each() -> None:
    actual_table = AdaptiveBatchModel(
        ThroughputModel(0.2, 0.01, 0.1, 0.01, 0.05, 0.001, 1.2), GradientNoise(0.5, 3.0), BatchLimits(16, 512, 2, 32)
    )
    jobs = [AdaptiveBatchModel(MODEL, NOISE, LIMITS), actual_table] * 150  # more than are computed together
    workers = [np.array([1, 2, 4, 8]), np.array([3, 16])] * 150
    nodes = [np.array([1, 1, 1, 2]), np.array([1, 4])] * 150

    tables = goodput_tables(jobs, workers, nodes)

    assert len(tables) == 300
    for job, count, many, (rates, local, passes) in zip(jobs, workers, nodes, tables, strict=True):
        assert rates == pytest.approx(job.work_per_s(count, many), rel=0.01)  # fewer batches are tried
        totals = local * passes * count
        assert (totals >= job.limits.initial).all() and (totals <= job.limits.maximum).all()
    assert goodput_tables([], [], []) == []


@pytest.mark.parametrize(("workers", "nodes"), PLACES)
def test_a_fixed_batch_stays_whatever_the_workers(workers: int, nodes: int) -> None:
    model = FixedBatchModel(MODEL, NOISE, LIMITS, total_batch=512)
    batch = model.batch(workers, nodes)

    assert batch is not None and batch.total_records(workers) == 512
    assert float(model.work_per_s(workers, nodes)) == pytest.approx(
        rate_of(workers, nodes, batch.local_batch, batch.passes)
    )


def test_the_best_batch_is_no_worse_than_any_fixed_one() -> None:
    best = AdaptiveBatchModel(MODEL, NOISE, LIMITS)
    for total in (64, 128, 512, 2048):
        fixed = FixedBatchModel(MODEL, NOISE, LIMITS, total)
        for workers, nodes in PLACES[1:-1]:
            if total >= LIMITS.local_minimum * workers:
                assert float(fixed.work_per_s(workers, nodes)) <= 1.03 * float(best.work_per_s(workers, nodes))


def test_a_fixed_batch_does_nothing_without_workers() -> None:
    rates = FixedBatchModel(MODEL, NOISE, LIMITS, 512).work_per_s(np.array([0, 1]), np.array([0, 1]))

    assert rates[0] == 0.0 and rates[1] > 0.0
