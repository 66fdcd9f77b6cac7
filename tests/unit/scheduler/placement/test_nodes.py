"""The choice of nodes for workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import (
    is_consolidated,
    meets_constraints,
    place_workers,
    resize_in_place,
    shrink_workers,
)
from elasticdl.scheduler.snapshot import NodeInfo, PlacementConstraint
from tests.unit.scheduler.cases import job, nodes, running


def test_one_node_if_one_has_room_and_the_one_with_the_least_left() -> None:
    assert place_workers(FreeResources(nodes(8, 4, 3)), job("a"), 3) == {"n2": 3}


def test_else_whole_nodes_first_and_the_rest_where_it_leaves_the_least() -> None:
    assert place_workers(FreeResources(nodes(8, 8, 2, 8)), job("a"), 18) == {"n0": 8, "n1": 8, "n2": 2}


def test_what_does_not_fit_is_not_placed() -> None:
    assert place_workers(FreeResources(nodes(2, 2)), job("a"), 5) is None
    assert place_workers(FreeResources(nodes(3, 3)), job("a", devices=2), 3) is None
    assert place_workers(FreeResources(()), job("a"), 1) is None


def test_other_resources_are_kept() -> None:
    cluster = [NodeInfo("n0", 8, resources={"memory": 2.0}), NodeInfo("n1", 8, resources={"memory": 3.0})]

    assert place_workers(FreeResources(cluster), job("a", request={"memory": 1.0}), 5) == {"n1": 3, "n0": 2}
    assert place_workers(FreeResources(cluster), job("a", request={"memory": 1.0}), 6) is None


RACKS = (
    *(NodeInfo(f"a{index}", 2, "a", f"r{index // 2}") for index in range(4)),
    NodeInfo("b0", 4, "b", "r0"),
    NodeInfo("b1", 1, "b", "r1"),
)


def test_four_in_one_rack_on_kind_a_and_two_on_kind_b() -> None:
    wanting = job("j", 6, 8, constraints=(PlacementConstraint(4, "a", same_rack=True), PlacementConstraint(2, "b")))

    assert place_workers(FreeResources(RACKS), wanting, 6) == {"a0": 2, "a1": 2, "b0": 2}


def test_a_constraint_for_one_rack_is_not_met_by_two() -> None:
    room = FreeResources(RACKS)
    room.allocate(job("other"), {"a0": 1, "a2": 1})

    assert place_workers(room, job("j", 4, constraints=(PlacementConstraint(4, "a", same_rack=True),)), 4) is None


def test_constraints_for_a_kind_are_met_before_those_for_any() -> None:
    cluster = [NodeInfo("n0", 2, "b"), NodeInfo("n1", 3, "a")]

    assert place_workers(
        FreeResources(cluster), job("j", 4, constraints=(PlacementConstraint(2), PlacementConstraint(2, "b"))), 4
    ) == {"n0": 2, "n1": 2}


def test_a_constraint_for_a_kind_the_job_cannot_run_on_is_never_met() -> None:
    assert (
        place_workers(FreeResources(RACKS), job("j", kinds=("b",), constraints=(PlacementConstraint(1, "a"),)), 1)
        is None
    )


def test_a_worker_counts_for_one_constraint_only() -> None:
    wanting = job("j", 4, constraints=(PlacementConstraint(2, "a"), PlacementConstraint(2, same_rack=True)))

    assert meets_constraints(FreeResources(RACKS), wanting, {"a0": 2, "a1": 2})
    assert meets_constraints(FreeResources(RACKS), wanting, {"a0": 1, "a2": 1, "b0": 2})
    assert not meets_constraints(FreeResources(RACKS), wanting, {"a0": 2, "b0": 1, "b1": 1})
    assert not meets_constraints(FreeResources(RACKS), wanting, {"a0": 1, "b0": 3})


def test_growing_workers_come_beside_those_there() -> None:
    assert resize_in_place(FreeResources(nodes(4, 4, 8)), running("a", {"n1": 2}, 1, 9), 4) == {"n1": 4}
    assert resize_in_place(FreeResources(nodes(4, 4, 8)), running("a", {"n1": 2}, 1, 9), 7) == {"n1": 4, "n0": 3}


def test_shrinking_workers_leave_the_nodes_with_the_fewest() -> None:
    assert resize_in_place(FreeResources(nodes(4, 4, 4)), running("a", {"n0": 1, "n1": 4, "n2": 2}), 5) == {
        "n1": 4,
        "n2": 1,
    }
    assert shrink_workers({"n0": 2, "n1": 2}, 0) == {}


def test_a_job_that_cannot_stay_is_placed_anew() -> None:
    room = FreeResources(nodes(4, 4))
    room.allocate(job("other"), {"n0": 3})

    assert resize_in_place(room, running("a", {"n0": 2}), 2) == {"n1": 2}
    assert resize_in_place(room, running("a", {"gone": 2}), 2) == {"n1": 2}
    assert resize_in_place(room, running("a", {"n0": 1, "n1": 4}), 6) is None


def test_a_job_with_constraints_stays_while_they_are_met() -> None:
    wanting = running(
        "j", {"a2": 2, "a3": 2, "b0": 1}, 4, 8, constraints=(PlacementConstraint(4, "a", same_rack=True),)
    )

    assert resize_in_place(FreeResources(RACKS), wanting, 6) == {"a2": 2, "a3": 2, "b0": 2}
    assert resize_in_place(FreeResources(RACKS), wanting, 4) == {"a2": 2, "a3": 2}


def test_a_job_is_consolidated_when_no_fewer_nodes_could_hold_it() -> None:
    room = FreeResources(nodes(4, 4, 8))

    assert is_consolidated(room, job("a"), {"n0": 4, "n1": 1})
    assert not is_consolidated(room, job("a"), {"n0": 2, "n1": 2})


@given(st.lists(st.integers(0, 8), max_size=6), st.integers(1, 4), st.integers(1, 20))
def test_a_placement_has_all_workers_fits_and_uses_the_fewest_nodes(sizes: list[int], each: int, count: int) -> None:
    room, wanting = FreeResources(nodes(*sizes)), job("a", devices=each)

    workers = place_workers(room, wanting, count)

    fits = sorted((size // each for size in sizes), reverse=True)
    if workers is None:
        assert sum(fits) < count
    else:
        assert sum(workers.values()) == count and room.can_hold(wanting, workers)
        assert sum(fits[: len(workers) - 1]) < count
