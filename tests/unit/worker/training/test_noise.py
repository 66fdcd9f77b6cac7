"""The estimator against an oracle in numpy, on gradients whose noise is known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from elasticdl.worker.training.adaptive_batch import (
    NoiseEstimate,
    SmoothedNoise,
    estimate_from_difference,
    estimate_from_parts,
)

DIMENSIONS, GLOBAL_BATCH = 40, 32
Floats = NDArray[np.float64]


def gradients(rng: np.random.Generator, mean: Floats, sigma: Floats, sizes: list[int]) -> list[Floats]:
    """Mean gradients of batches of these sizes; a record's gradient has the covariance diag(sigma²)."""
    return [mean + sigma * rng.standard_normal(DIMENSIONS) / np.sqrt(size) for size in sizes]


def estimate(parts: list[Floats], sizes: list[int]) -> NoiseEstimate:
    weights = np.array(sizes) / sum(sizes)
    local = float(sum(weight * part @ part for weight, part in zip(weights, parts, strict=True)))
    gradient = np.average(parts, axis=0, weights=weights)
    noise = estimate_from_parts(local, float(gradient @ gradient), len(parts), sum(sizes) / GLOBAL_BATCH)
    assert noise is not None
    return noise


@pytest.mark.parametrize(
    "sizes",
    [[8, 8, 8, 8], [9, 9, 8, 8, 7], [32, 32], [32] * 6, [3, 2]],
    ids=["equal", "unequal", "two passes", "six passes", "short"],
)
def test_the_mean_of_many_estimates_is_exact_however_the_batch_is_split(sizes: list[int]) -> None:
    rng = np.random.default_rng(1)
    mean, sigma = rng.normal(size=DIMENSIONS) / 4, rng.uniform(0.5, 2, size=DIMENSIONS)

    estimates = np.array([estimate(gradients(rng, mean, sigma, sizes), sizes)[:2] for _ in range(4000)])

    square, variance = estimates.mean(axis=0)
    error = estimates.std(axis=0) / np.sqrt(len(estimates))
    assert abs(square - mean @ mean) < 4 * error[0]
    assert abs(variance - (sigma @ sigma) / GLOBAL_BATCH) < 4 * error[1]


def test_equal_parts_give_the_estimate_of_the_paper() -> None:
    rng = np.random.default_rng(2)
    parts = [rng.normal(size=DIMENSIONS) for _ in range(4)]

    noise = estimate(parts, [16] * 4)

    local, total = np.mean([part @ part for part in parts]), np.mean(parts, axis=0) @ np.mean(parts, axis=0)
    assert noise.square == pytest.approx((4 * total - local) / 3)
    assert noise.variance == pytest.approx((local - total) * 2 / 3)


def test_consecutive_gradients_give_the_same_estimate() -> None:
    rng = np.random.default_rng(3)
    mean, sigma = rng.normal(size=DIMENSIONS) / 4, rng.uniform(0.5, 2, size=DIMENSIONS)
    estimates = []
    for _ in range(4000):
        before, now = gradients(rng, mean, sigma, [GLOBAL_BATCH, GLOBAL_BATCH])
        noise = estimate_from_difference(float(before @ before), float(now @ now), float(before @ now), 1.0)
        assert noise is not None and noise.is_difference
        estimates.append(noise[:2])

    square, variance = np.mean(estimates, axis=0)
    assert square == pytest.approx(mean @ mean, rel=0.05)
    assert variance == pytest.approx((sigma @ sigma) / GLOBAL_BATCH, rel=0.05)


@pytest.mark.parametrize(
    ("local", "total", "parts"), [(1.0, 0.5, 1), (1.0, 0.5, 0), (float("inf"), 1.0, 4), (1.0, float("nan"), 4)]
)
def test_insufficient_gradients_give_no_estimate(local: float, total: float, parts: int) -> None:
    assert estimate_from_parts(local, total, parts, 1.0) is None


def test_smoothed_estimates_are_corrected_for_the_initial_zeros() -> None:
    noise, scales = SmoothedNoise(), [1.0, 4.0, 4.0, 0.3]
    estimates = [NoiseEstimate(float(n + 1), float(10 * n)) for n in range(4)]
    square = variance = weight = 0.0
    for estimate, scale in zip(estimates, scales, strict=True):
        noise.add(estimate, scale)
        decay = 0.999**scale
        square, variance = decay * square + (1 - decay) * estimate[0], decay * variance + (1 - decay) * estimate[1]
        weight = decay * weight + 1 - decay

    assert noise.square == pytest.approx(square / weight)
    assert noise.variance == pytest.approx(variance / weight)


def test_a_different_kind_of_estimate_restarts_the_smoothing() -> None:
    noise = SmoothedNoise()
    noise.add(NoiseEstimate(100.0, 100.0, is_difference=True), 1.0)
    noise.add(NoiseEstimate(2.0, 3.0), 1.0)

    assert (noise.square, noise.variance) == pytest.approx((2.0, 3.0))
    assert noise.has_estimate(is_difference=False) and not noise.has_estimate(is_difference=True)


def test_negative_estimates_count_as_zero() -> None:
    noise = SmoothedNoise()
    noise.add(NoiseEstimate(-1.0, 4.0), 1.0)

    assert (noise.square, noise.variance) == (0.0, 4.0)
    assert noise.gain(8.0) == pytest.approx(8.0), "all noise: every record counts"


def test_the_gain_lies_between_one_and_the_scale_and_is_one_for_a_single_batch() -> None:
    noise = SmoothedNoise()
    noise.add(NoiseEstimate(2.0, 6.0), 1.0)

    assert noise.gain(1.0) == pytest.approx(1.0)
    assert noise.gain(4.0) == pytest.approx(8 / (6 / 4 + 2))
    assert SmoothedNoise().gain(4.0) == 1.0, "nothing is known yet"


def test_the_state_survives_json_to_the_bit() -> None:
    noise = SmoothedNoise()
    for n in range(5):
        noise.add(NoiseEstimate(1 / (n + 3), 1 / 7), 8.0)

    again = SmoothedNoise.from_state_dict(json.loads(json.dumps(noise.state_dict())))

    assert again == noise
