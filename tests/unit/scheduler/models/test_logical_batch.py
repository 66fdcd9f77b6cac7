from __future__ import annotations

import numpy as np
import pytest

from elasticdl.scheduler.models.goodput import LogicalBatchModel, candidate_batch_scales
from elasticdl.scheduler.models.throughput import MIN_PARAMETER, ThroughputModel
from elasticdl.scheduler.snapshot import GradientNoise

# 1 ms a record; on one machine exchanging costs 50 ms, and hides behind nothing.
THROUGHPUT = ThroughputModel(MIN_PARAMETER, 1e-3, 0.5, MIN_PARAMETER, 0.05, MIN_PARAMETER, 1.0)
NOISY, CALM = GradientNoise(1e-6, 1.0), GradientNoise(1.0, 1e-6)


def model(scales: tuple[int, ...] = (1, 2, 4, 8), noise: GradientNoise | None = NOISY) -> LogicalBatchModel:
    return LogicalBatchModel(THROUGHPUT, global_batch=64, logical_ranks=4, scales=scales, noise=noise)


def test_a_step_takes_as_long_as_the_worker_with_most_logical_ranks() -> None:
    rates = model((1,)).work_per_s([0, 1, 2, 3, 4], [0, 1, 1, 1, 1])

    assert rates == pytest.approx([0.0, 1 / 0.064, 1 / 0.082, 1 / 0.082, 1 / 0.066], rel=1e-3)


def test_more_passes_are_worth_it_where_noise_prevails_and_exchanging_costs() -> None:
    batch = model().batch(4, 1)

    assert batch is not None and (batch.local_batch, batch.passes) == (16, 8)
    assert batch.learning_rate_scale == pytest.approx(8.0, rel=1e-3)
    assert model().work_per_s([4], [1]) == pytest.approx([8 / (8 * 0.016 + 0.05)], rel=1e-3)


def test_and_not_where_a_larger_batch_is_worth_nothing() -> None:
    batch = model(noise=CALM).batch(4, 1)

    assert batch is not None and (batch.local_batch, batch.passes) == (16, 1)
    assert batch.learning_rate_scale == pytest.approx(1.0)


def test_a_job_with_one_scale_has_the_batch_of_its_user() -> None:
    assert model((1,), None).batch(4, 1) is None
    assert model((3,), None).work_per_s([1], [1]) == pytest.approx([1 / 0.064], rel=1e-3)


def test_rates_have_the_shape_of_their_arguments() -> None:
    assert model().work_per_s(np.ones((2, 3), int), np.ones((2, 3), int)).shape == (2, 3)
    assert model().work_per_s(2, 1).shape == ()


@pytest.mark.parametrize(
    ("max_scale", "expected"), [(1, (1,)), (3, (1, 2, 3)), (5, (1, 2, 3, 4)), (32, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32))]
)
def test_scales_are_coarse(max_scale: int, expected: tuple[int, ...]) -> None:
    assert candidate_batch_scales(max_scale) == expected
