from __future__ import annotations

import math

import pytest

from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.scheduler import measured
from elasticdl.scheduler.interface import Batch
from elasticdl.scheduler.snapshot import Noise, SpeedSample


def speed(**changed: float) -> pb.SpeedStatus:
    good = {"nodes": 1, "workers": 2, "local_batch": 32, "step_s": 0.2, "compute_s": 0.1}
    return pb.SpeedStatus(**{**good, **changed})  # type: ignore[arg-type]


def test_speeds_become_samples_of_the_kind_of_device() -> None:
    status = pb.JobStatus(speeds=[speed(), speed(nodes=2, workers=4)])

    assert measured.speeds(status, "a100") == (
        SpeedSample(1, 2, 32, 0.2, 0.1, "a100"),
        SpeedSample(2, 4, 32, 0.2, 0.1, "a100"),
    )


@pytest.mark.parametrize(
    "wrong",
    [{"step_s": math.nan}, {"step_s": math.inf}, {"compute_s": 0.0}, {"compute_s": -1.0}, {"workers": 0}],
)
def test_what_is_no_time_is_left_out(wrong: dict[str, float]) -> None:
    assert measured.speeds(pb.JobStatus(speeds=[speed(**wrong)])) == ()


@pytest.mark.parametrize(
    ("square", "variance", "expected"),
    [
        (0.5, 8.0, Noise(0.5, 8.0)),
        (0.0, 8.0, Noise(0.0, 8.0)),
        (0.0, 0.0, None),
        (math.nan, 1.0, None),
        (1.0, math.inf, None),
        (-1.0, 2.0, None),
    ],
)
def test_noise_is_told_once_it_is_known_and_finite(square: float, variance: float, expected: Noise | None) -> None:
    assert measured.noise(pb.JobStatus(gradient_square=square, gradient_variance=variance)) == expected


@pytest.mark.parametrize(
    ("batch", "workers", "expected"),
    [
        (Batch(32), 4, 1),
        (Batch(32, passes=3), 4, 3),
        (Batch(48), 4, 2),  # 192 records: nearer to two batches of 128 than to one
        (Batch(8), 4, 1),
        (Batch(512, passes=4), 8, 16),  # as many as the job allows
        (Batch(26, passes=10), 5, 10),  # 128 records among 5: a whole pass, rounded up
    ],
)
def test_a_batch_of_a_plan_becomes_a_number_of_global_batches(batch: Batch, workers: int, expected: int) -> None:
    status = pb.JobStatus(global_batch=128, max_batch_scale=16)

    assert measured.batch_scale(status, batch, workers) == expected


def test_a_job_whose_batch_stays_as_it_is_or_is_not_known_has_one() -> None:
    assert measured.batch_scale(pb.JobStatus(global_batch=128, max_batch_scale=1), Batch(512), 4) == 1
    assert measured.batch_scale(pb.JobStatus(), Batch(512), 4) == 1
