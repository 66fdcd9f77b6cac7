from __future__ import annotations

import math

import pytest

from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.scheduler.accounts import progress
from elasticdl.scheduler.interface import BatchConfig
from elasticdl.scheduler.snapshot import GradientNoise, SpeedSample


def speed(**changed: float) -> pb.SpeedStatus:
    good = {"nodes": 1, "workers": 2, "local_batch": 32, "step_s": 0.2, "compute_s": 0.1}
    return pb.SpeedStatus(**{**good, **changed})  # type: ignore[arg-type]


def test_speeds_become_samples_of_the_kind_of_device() -> None:
    status = pb.JobStatus(speeds=[speed(), speed(nodes=2, workers=4)])

    assert progress.parse_speed_samples(status, "a100") == (
        SpeedSample(1, 2, 32, 0.2, 0.1, "a100"),
        SpeedSample(2, 4, 32, 0.2, 0.1, "a100"),
    )


@pytest.mark.parametrize(
    "wrong",
    [{"step_s": math.nan}, {"step_s": math.inf}, {"compute_s": 0.0}, {"compute_s": -1.0}, {"workers": 0}],
)
def test_invalid_times_are_ignored(wrong: dict[str, float]) -> None:
    assert progress.parse_speed_samples(pb.JobStatus(speeds=[speed(**wrong)])) == ()


@pytest.mark.parametrize(
    ("square", "variance", "expected"),
    [
        (0.5, 8.0, GradientNoise(0.5, 8.0)),
        (0.0, 8.0, GradientNoise(0.0, 8.0)),
        (0.0, 0.0, None),
        (math.nan, 1.0, None),
        (1.0, math.inf, None),
        (-1.0, 2.0, None),
    ],
)
def test_noise_is_parsed_once_it_is_known_and_finite(
    square: float, variance: float, expected: GradientNoise | None
) -> None:
    assert progress.parse_gradient_noise(pb.JobStatus(gradient_square=square, gradient_variance=variance)) == expected


@pytest.mark.parametrize(
    ("batch", "workers", "expected"),
    [
        (BatchConfig(32), 4, 1),
        (BatchConfig(32, passes=3), 4, 3),
        (BatchConfig(48), 4, 2),  # 192 records: nearer to two batches of 128 than to one
        (BatchConfig(8), 4, 1),
        (BatchConfig(512, passes=4), 8, 16),  # as many as the job allows
        (BatchConfig(26, passes=10), 5, 10),  # 128 records among 5: a whole pass, rounded up
    ],
)
def test_a_batch_of_a_plan_becomes_a_number_of_global_batches(batch: BatchConfig, workers: int, expected: int) -> None:
    assert progress.compute_batch_scale(batch, workers, global_batch=128, max_scale=16) == expected


def test_a_job_with_a_fixed_or_unknown_batch_has_one_global_batch() -> None:
    assert progress.compute_batch_scale(BatchConfig(512), 4, global_batch=128, max_scale=1) == 1
    assert progress.compute_batch_scale(BatchConfig(512), 4, global_batch=0, max_scale=0) == 1
