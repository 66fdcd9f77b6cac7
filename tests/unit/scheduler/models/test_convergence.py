"""Loss curves: found again, and when they are flat."""

from __future__ import annotations

import math

import numpy as np
import pytest

from elasticdl.scheduler.models.convergence import MOST_EPOCHS, UNKNOWN_EPOCHS, LossCurve, epochs_left, fit

TRUTH = LossCurve(0.2, 1.25, 0.2, 4.0)


def losses(epochs: int, noise: float = 0.0, seed: int = 1) -> list[tuple[float, float]]:
    dice = np.random.default_rng(seed)
    return [(float(k), float(TRUTH.at(k)) * math.exp(noise * dice.standard_normal())) for k in range(epochs)]


def test_a_curve_is_found_again() -> None:
    found = fit(losses(12))

    assert found is not None
    assert found.at(range(60)) == pytest.approx(TRUTH.at(range(60)), rel=1e-3)


def test_with_noise_of_two_percent_its_future_is_known_within_ten() -> None:
    for seed in range(5):
        found = fit(losses(20, 0.02, seed))
        assert found is not None
        assert found.at([30, 40]) == pytest.approx(TRUTH.at([30, 40]), rel=0.1)


def test_it_has_converged_when_ten_epochs_more_gain_less_than_a_twentieth() -> None:
    """1/(0.2·k + 1.25) - 1/(0.2·k + 3.25) falls below 0.05 at 0.2·k + 1.25 = 5.4."""
    assert TRUTH.converges_at() == 21
    assert epochs_left(losses(12)) == pytest.approx(21 - 11, abs=1)
    assert epochs_left(losses(40)) == 0


def test_later_points_weigh_more() -> None:
    """The loss fell at first and is flat since."""
    found = fit([(0.0, 10.0), (1.0, 5.0), (2.0, 2.0), *((float(k), 1.0) for k in range(3, 9))])

    assert found is not None
    assert found.at(8) == pytest.approx(1.0, rel=0.1)


def test_a_constant_loss_has_converged() -> None:
    assert epochs_left([(float(k), 2.0) for k in range(5)]) == 0


def test_a_rising_loss_has_converged_too() -> None:
    assert epochs_left([(float(k), 1.0 + k) for k in range(5)]) == 0


def test_a_loss_that_keeps_falling_is_cut_at_the_most_epochs() -> None:
    slow = LossCurve(0.001, 1.0, 0.0, 1.0)

    assert slow.converges_at() == 0, "it hardly falls"
    assert LossCurve(0.0099, 0.01, 0.0, 1.0).converges_at() == MOST_EPOCHS


@pytest.mark.parametrize(
    "bad",
    [
        [],
        [(0.0, 1.0), (1.0, 0.5)],
        [(1.0, 0.5)] * 9,
        [(0.0, math.nan), (1.0, math.inf), (math.nan, 1.0), (2.0, 1.0), (3.0, 1.0)],
        [(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)],
        [(0.0, -1.0), (1.0, -2.0), (2.0, -3.0)],
    ],
)
def test_what_cannot_be_fitted_is_believed_to_need_twenty_epochs(bad: list[tuple[float, float]]) -> None:
    assert fit(bad) is None
    assert epochs_left(bad) == UNKNOWN_EPOCHS


def test_points_that_are_no_numbers_are_left_out() -> None:
    assert fit([*losses(12), (12.0, math.nan), (math.inf, 1.0)]) == fit(losses(12))
