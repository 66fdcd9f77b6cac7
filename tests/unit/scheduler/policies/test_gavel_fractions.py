"""Fractions of time, where the right ones can be computed by hand."""

from __future__ import annotations

import pytest

from elasticdl.scheduler.policies.gavel import (
    TimeFractionProblem,
    find_min_rho,
    isolated_rates,
    solve_max_min,
    solve_time_fractions,
)

ONE = TimeFractionProblem.from_lists([1], [1, 1], [[1.0], [1.0]])
TWO = TimeFractionProblem.from_lists([1, 1], [1, 1], [[4.0, 1.0], [1.0, 1.0]])


def test_two_equal_jobs_have_half_the_time_each() -> None:
    assert solve_time_fractions(ONE, [1.0, 1.0]).ravel() == pytest.approx([0.5, 0.5], abs=1e-3)


def test_a_job_that_needs_three_times_as_much_has_three_times_the_time() -> None:
    assert solve_time_fractions(ONE, [3.0, 1.0]).ravel() == pytest.approx([0.75, 0.25], abs=1e-3)


def test_spare_time_goes_to_the_highest_rates() -> None:
    fractions = solve_time_fractions(TWO, [1.0, 1.0])

    assert fractions[0] == pytest.approx([1.0, 0.0], abs=1e-3)
    assert fractions[1] == pytest.approx([0.0, 1.0], abs=1e-3)


def test_a_job_of_two_devices_can_have_half_the_time_of_a_job_of_one() -> None:
    z, _ = solve_max_min(TimeFractionProblem.from_lists([1], [1, 2], [[1.0], [1.0]]), [1.0, 1.0])

    assert z == pytest.approx(1 / 3)


def test_a_job_alone_gets_its_fraction_of_every_kind() -> None:
    assert isolated_rates(TWO) == pytest.approx([2.5, 1.0])


def test_needs_of_any_size_are_solved() -> None:
    assert solve_time_fractions(ONE, [1e9, 1e9]).ravel() == pytest.approx([0.5, 0.5], abs=1e-3)
    assert solve_time_fractions(ONE, [1e9, 1e-9]).ravel() == pytest.approx([1.0, 0.0], abs=1e-3)


def test_the_smallest_rho_of_two_new_jobs_is_one() -> None:
    rho, rates = find_min_rho(ONE, [100.0, 100.0], [0.0, 0.0], [200.0, 200.0])

    assert rho == pytest.approx(1.0, rel=2e-3)
    assert rates == pytest.approx([0.5, 0.5], rel=3e-3)


def test_a_job_that_waited_gets_time_from_one_that_did_not() -> None:
    """1 + 1/x = 1/(1 - x) at x = 0.618."""
    rho, rates = find_min_rho(ONE, [100.0, 100.0], [100.0, 0.0], [200.0, 200.0])

    assert rates[0] == pytest.approx(0.618, abs=5e-3)
    assert rho == pytest.approx((100 + 100 / 0.618) / 200, rel=5e-3)


def test_a_job_that_is_far_behind_still_has_a_solution() -> None:
    rho, _ = find_min_rho(ONE, [1.0, 1e6], [1e6, 0.0], [1.0, 1e6])

    assert rho >= 1e6
