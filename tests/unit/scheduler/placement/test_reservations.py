"""Prices, and the cheapest schedule over the slots."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from elasticdl.scheduler.placement.configurations import ConfigurationTable, DeviceConfiguration
from elasticdl.scheduler.placement.reservations import (
    PriceBounds,
    Reservation,
    ReservationCalendar,
    best_reservation,
    min_costs_by_slot,
    trace_choices,
)
from elasticdl.scheduler.snapshot import JobInfo, Snapshot
from tests.unit.scheduler.policies.rules import cluster


def calendar(devices: int = 4, slots: int = 4) -> ReservationCalendar:
    return ReservationCalendar(ConfigurationTable(Snapshot(0.0, cluster(1, devices), ())), 0, slots, 100.0)


def reserve(devices: int, *slots: int) -> Reservation:
    return Reservation("", dict.fromkeys(slots, devices), {slot: {"": devices} for slot in slots})


def test_a_free_device_costs_the_least_and_the_last_one_nearly_the_most() -> None:
    new_calendar, config = calendar(), DeviceConfiguration(1, "", {"": 1})
    new_calendar.add(reserve(2, 1))
    new_calendar.add(reserve(4, 2))

    assert new_calendar.slot_costs(config, 1.0, 16.0).tolist() == [1.0, 4.0, np.inf, 1.0]


def test_the_cheapest_way_is_that_of_trying_all() -> None:
    dice = np.random.default_rng(7)
    costs, done, units = dice.random((4, 2)), np.array([[1, 3]] * 4), 5
    totals, choices = min_costs_by_slot(costs, done, units)

    def spent(way: tuple[int, ...]) -> float:
        return sum(costs[slot, option - 1] for slot, option in enumerate(way) if option)

    for end in range(4):
        ways = itertools.product(range(3), repeat=end + 1)
        enough = [spent(way) for way in ways if sum((0, 1, 3)[option] for option in way) >= units]
        assert totals[end] == pytest.approx(min(enough, default=np.inf))
    way = trace_choices(choices, 3)
    assert sum(costs[slot, option] for slot, option in way.items()) == pytest.approx(totals[3])


def test_a_job_goes_where_slots_are_free() -> None:
    new_calendar = calendar()
    new_calendar.add(reserve(4, 0, 2))
    job = JobInfo("a", 0.0, max_workers=4)

    reservation = best_reservation(new_calendar, job, 0.0, 600.0, lambda ends_at: 10.0, PriceBounds(10.0, 0.01, 1.0), 6)

    assert reservation is not None
    assert set(reservation.workers) == {1, 3}


def test_what_has_passed_of_this_slot_does_nothing() -> None:
    early, late = (
        best_reservation(
            calendar(), JobInfo("a", 0.0), now, 200.0, lambda ends_at: 10.0, PriceBounds(10.0, 0.01, 1.0), 10
        )
        for now in (0.0, 50.0)
    )

    assert early is not None and set(early.workers) == {0, 1}
    assert late is not None and set(late.workers) == {1, 2}


def test_a_job_that_is_worth_less_than_it_costs_reserves_nothing() -> None:
    new_calendar = calendar()
    new_calendar.add(reserve(3, 0, 1, 2, 3))

    assert (
        best_reservation(
            new_calendar, JobInfo("a", 0.0), 0.0, 100.0, lambda ends_at: 1.0, PriceBounds(100.0, 1.0, 16.0), 10
        )
        is None
    )
    assert (
        best_reservation(
            new_calendar, JobInfo("a", 0.0), 0.0, 100.0, lambda ends_at: 90.0, PriceBounds(100.0, 1.0, 16.0), 10
        )
        is not None
    )
