"""Optimus's model of speed, on data whose coefficients are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from elasticdl.scheduler.models.optimus_speed import COEFFICIENTS, Form, OptimusSpeed, Point, fit, of_steps
from elasticdl.scheduler.snapshot import SpeedSample

TRUTH: dict[Form, OptimusSpeed] = {
    "asynchronous": OptimusSpeed("asynchronous", (1.0, 0.5, 0.05, 0.1), 64),
    "synchronous": OptimusSpeed("synchronous", (0.01, 0.2, 0.3, 0.02, 0.01), 512),
    "all-reduce": OptimusSpeed("all-reduce", (0.01, 0.2, 0.02), 512),
}
FORMS = pytest.mark.parametrize("form", list(TRUTH))


def measured(form: Form, noise: float = 0.0, seed: int = 3) -> list[Point]:
    dice, truth = np.random.default_rng(seed), TRUTH[form]
    pairs = [(1, 1), (1, 2), (2, 1), (2, 4), (4, 2), (4, 4), (8, 2), (8, 8), (3, 5), (10, 10)]
    speeds = [float(truth.steps(w, p)) * math.exp(noise * dice.standard_normal()) for w, p in pairs]
    return [Point(w, p, speed, truth.records) for (w, p), speed in zip(pairs, speeds, strict=True)]


@FORMS
def test_coefficients_are_found_again(form: Form) -> None:
    found = fit(form, measured(form), TRUTH[form].records)

    assert found is not None
    assert found.coefficients == pytest.approx(TRUTH[form].coefficients, rel=1e-6)


@FORMS
def test_with_noise_of_three_percent_speeds_between_are_predicted_within_ten(form: Form) -> None:
    for seed in range(5):
        found = fit(form, measured(form, 0.03, seed), TRUTH[form].records)
        assert found is not None
        assert found.steps([6, 9], [6, 9]) == pytest.approx(TRUTH[form].steps([6, 9], [6, 9]), rel=0.1)


@FORMS
def test_fewer_points_than_coefficients_are_not_fitted(form: Form) -> None:
    assert fit(form, measured(form)[: COEFFICIENTS[form] - 1], 512) is None
    assert fit(form, measured(form)[:1] * 10, 512) is None, "ten times the same point"


def test_points_that_are_no_speeds_are_left_out() -> None:
    bad = [Point(1, 1, math.nan, 512), Point(2, 2, -1.0, 512), Point(0, 1, 3.0, 512), Point(9, 9, math.inf, 512)]
    found = fit("synchronous", [*measured("synchronous"), *bad], 512)

    assert found == fit("synchronous", measured("synchronous"), 512)
    assert fit("synchronous", bad * 2, 512) is None


def test_as_rates_it_answers_records_a_second_and_nothing_for_no_workers() -> None:
    rates = TRUTH["all-reduce"]

    assert rates.at([0, 1, 2], [0, 1, 1]).tolist() == pytest.approx([0.0, 512 / 5.34, 512 / 2.8])
    assert rates.batch(4, 1) is None


def test_what_was_measured_goes_before_the_model() -> None:
    points = [Point(w, 0, float(TRUTH["all-reduce"].steps(w, 0)) * (2 if w == 4 else 1), 512) for w in (1, 2, 4, 8, 16)]
    found = fit("all-reduce", points, 512)

    assert found is not None
    assert found.at(4, 1) == pytest.approx(2 * TRUTH["all-reduce"].at(4, 1))


def test_measured_steps_become_points_of_their_batch() -> None:
    samples = (SpeedSample(1, 2, 32, 0.5, 0.4), SpeedSample(1, 4, 32, math.nan, 0.4), SpeedSample(1, 4, 32, 0.0, 0.4))

    assert of_steps(samples) == [Point(2, 0, 2.0, 64)]
