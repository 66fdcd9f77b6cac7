"""From counts to nodes, one job after the other."""

from __future__ import annotations

import pytest

from elasticdl.scheduler.placement.assignment import (
    assign_nodes,
    can_all_stay,
    can_use_any_device,
    grow_workers,
    next_size,
    place_at_most,
    sort_by_submission,
    surviving_workers,
)
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.snapshot import JobInfo, PlacementConstraint
from tests.unit.scheduler.cases import job, nodes, running


def test_first_come_first_and_names_break_ties() -> None:
    jobs = [job("b", submitted_at=1.0), job("c", submitted_at=0.0), job("a", submitted_at=1.0)]

    assert [job_info.name for job_info in sort_by_submission(jobs)] == ["c", "a", "b"]


def test_a_job_that_keeps_its_count_stays_then_some_shrink_then_others_grow_and_come() -> None:
    stays, shrinks = running("stays", {"n1": 2}, 1, 4), running("shrinks", {"n0": 4}, 1, 4)
    grows, comes = running("grows", {"n1": 1}, 1, 8), job("comes", 1, 4)
    sizes = {"stays": 2, "shrinks": 1, "grows": 2, "comes": 3}

    assigned = assign_nodes(FreeResources(nodes(4, 4)), [comes, grows, shrinks, stays], sizes)

    assert assigned == {"stays": {"n1": 2}, "shrinks": {"n0": 1}, "grows": {"n1": 2}, "comes": {"n0": 3}}


def test_a_job_that_does_not_fit_gets_fewer_or_nothing_if_it_is_rigid() -> None:
    job_info = job("a", 1, 8)

    assert assign_nodes(FreeResources(nodes(4)), [job_info], {"a": 8}) == {"a": {"n0": 4}}
    assert assign_nodes(FreeResources(nodes(4)), [job_info], {"a": 8}, is_rigid=True) == {}


def test_in_the_end_those_without_workers_are_tried_with_their_least() -> None:
    assert assign_nodes(FreeResources(nodes(4)), [job("a", 1, 4), job("b", 2, 4)], {"a": 2}) == {
        "a": {"n0": 2},
        "b": {"n0": 2},
    }


@pytest.mark.parametrize(
    ("job_info", "sizes"),
    [(JobInfo("a", 0.0, 3, 4), [3, 3, 3, 4, 0]), (JobInfo("a", 0.0, 1, 8, sizes=(2, 6, 9)), [2, 2, 6, 6, 6])],
)
def test_the_next_size_is_the_least_allowed_one_above(job_info: JobInfo, sizes: list[int]) -> None:
    assert [next_size(job_info, count) for count in range(5)] == sizes


def test_as_many_as_fit_where_they_are() -> None:
    room, job_info = FreeResources(nodes(2, 4)), running("a", {"n0": 1}, 1, 8)

    assert place_at_most(room, job_info, 2) == {"n0": 2}
    assert place_at_most(room, job_info, 8) == {"n0": 2, "n1": 4}
    assert place_at_most(room, job("b", 1, 8, sizes=(1, 3, 8)), 8) == {"n1": 3}
    assert place_at_most(room, job("c", 7, 8), 8) == {}


def test_enlarging_takes_room_beside_and_changes_nothing_without() -> None:
    room, job_info = FreeResources(nodes(2, 4)), job("a", 1, 8)
    room.allocate(job_info, {"n0": 1})

    assert grow_workers(room, job_info, {"n0": 1}, 7) is None and room.free_devices == 5
    assert grow_workers(room, job_info, {"n0": 1}, 3) == {"n0": 2, "n1": 1} and room.free_devices == 3


def test_those_stay_whose_nodes_are_still_there() -> None:
    job_info = running("a", {"n0": 2, "n9": 2}, 1, 4)

    assert surviving_workers(FreeResources(nodes(4)), job_info) == {"n0": 2}
    assert surviving_workers(FreeResources(nodes(1)), job_info) == {"n0": 1}
    assert surviving_workers(FreeResources(nodes(4)), running("b", {"n0": 2, "n9": 2}, 3, 4)) == {}


def test_all_stay_if_there_is_room_for_all_of_them_together() -> None:
    jobs = [running("a", {"n0": 2}), running("b", {"n0": 2}), job("waits")]

    assert can_all_stay(nodes(4), jobs)
    assert not can_all_stay(nodes(3), jobs)
    assert not can_all_stay((), jobs)


def test_a_job_without_constraints_can_use_any_device() -> None:
    assert can_use_any_device(job("a"))
    assert not any(
        can_use_any_device(job("a", **more))
        for more in (
            {"devices": 2},
            {"kinds": ("t4",)},
            {"request": {"memory": 1.0}},
            {"constraints": (PlacementConstraint(1),)},
        )
    )
