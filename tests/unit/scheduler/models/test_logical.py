from __future__ import annotations

import numpy as np
import pytest

from elasticdl.scheduler.interface import Batch
from elasticdl.scheduler.models.logical import LogicalBatch, scales_up_to
from elasticdl.scheduler.models.throughput import LEAST, Throughput
from elasticdl.scheduler.snapshot import Noise

# 1 ms a record; on one machine exchanging costs 50 ms, and hides behind nothing.
THROUGHPUT = Throughput(LEAST, 1e-3, 0.5, LEAST, 0.05, LEAST, 1.0)
NOISY, CALM = Noise(1e-6, 1.0), Noise(1.0, 1e-6)


def model(scales: tuple[int, ...] = (1, 2, 4, 8), noise: Noise | None = NOISY) -> LogicalBatch:
    return LogicalBatch(THROUGHPUT, global_batch=64, logical_ranks=4, scales=scales, noise=noise)


def test_a_step_takes_as_long_as_the_worker_with_most_logical_ranks() -> None:
    rates = model((1,)).at([0, 1, 2, 3, 4], [0, 1, 1, 1, 1])

    assert rates == pytest.approx([0.0, 1 / 0.064, 1 / 0.082, 1 / 0.082, 1 / 0.066], rel=1e-3)


def test_more_passes_are_worth_it_where_noise_prevails_and_exchanging_costs() -> None:
    assert model().batch(4, 1) == Batch(16, 8, pytest.approx(8.0, rel=1e-3))
    assert model().at([4], [1]) == pytest.approx([8 / (8 * 0.016 + 0.05)], rel=1e-3)


def test_and_not_where_a_larger_batch_is_worth_nothing() -> None:
    assert model(noise=CALM).batch(4, 1) == Batch(16, 1, pytest.approx(1.0))


def test_a_job_with_one_scale_has_the_batch_of_its_owner() -> None:
    assert model((1,), None).batch(4, 1) is None
    assert model((3,), None).at([1], [1]) == pytest.approx([1 / 0.064], rel=1e-3)


def test_rates_have_the_shape_of_what_was_asked() -> None:
    assert model().at(np.ones((2, 3), int), np.ones((2, 3), int)).shape == (2, 3)
    assert model().at(2, 1).shape == ()


@pytest.mark.parametrize(
    ("most", "expected"), [(1, (1,)), (3, (1, 2, 3)), (5, (1, 2, 3, 4)), (32, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32))]
)
def test_scales_are_coarse(most: int, expected: tuple[int, ...]) -> None:
    assert scales_up_to(most) == expected
