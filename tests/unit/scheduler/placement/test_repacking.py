"""Nodes for many jobs at once."""

from __future__ import annotations

from elasticdl.scheduler.placement.assignment import assign_or_repack, grow_round_robin, sort_by_change
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.snapshot import JobInfo, WorkersByNode
from tests.unit.scheduler.policies.rules import cluster


def job(name: str, workers: WorkersByNode | None = None, max_workers: int = 8, **more: object) -> JobInfo:
    return JobInfo(name, 0.0, max_workers=max_workers, workers=workers or {}, **more)  # type: ignore[arg-type]


def test_a_job_that_keeps_its_count_keeps_its_nodes() -> None:
    stays, grows = job("stays", {"n1": 3}), job("grows", {"n0": 1})

    assert assign_or_repack(cluster(2), [(grows, 4), (stays, 3)]) == {"stays": {"n1": 3}, "grows": {"n0": 4}}


def test_shrinking_jobs_make_room_before_others_grow() -> None:
    shrinks, grows = job("shrinks", {"n0": 3}), job("grows", {"n0": 1})

    assert assign_or_repack(cluster(1), [(grows, 3), (shrinks, 1)]) == {"shrinks": {"n0": 1}, "grows": {"n0": 3}}


def test_all_are_placed_anew_if_that_serves_more() -> None:
    """One device is free on each node, and a worker of two devices comes."""
    jobs = [job("a", {"n0": 1}), job("b", {"n1": 1})]
    wide = job("wide", max_workers=1, devices=2)
    assigned = assign_or_repack(cluster(2, 2), [(jobs[0], 1), (jobs[1], 1), (wide, 1)])

    assert assigned["a"].keys() == assigned["b"].keys() != assigned["wide"].keys()


def test_a_known_placement_is_taken_if_staying_does_not_serve_all() -> None:
    moved, wide = job("moved", {"n0": 1}), job("wide", max_workers=1, devices=4)
    placement = {"moved": {"n1": 1}, "wide": {"n0": 1}}

    assert assign_or_repack(
        (*cluster(1), *cluster(1, 1, "b")), [(moved, 1), (wide, 1)], {**placement, "moved": {"bn0": 1}}
    ) == {
        "moved": {"bn0": 1},
        "wide": {"n0": 1},
    }


def test_a_job_that_does_not_fit_gets_a_smaller_size() -> None:
    assert assign_or_repack(cluster(1), [(job("a"), 3), (job("b"), 8)]) == {"b": {"n0": 4}, "a": {}}


def test_no_job_waits_beside_a_free_device() -> None:
    assert assign_or_repack(cluster(1), [(job("a"), 2), (job("b"), 0)]) == {"a": {"n0": 2}, "b": {"n0": 1}}


def test_the_particular_choose_before_the_indifferent() -> None:
    order = sort_by_change([(job("any"), 8), (job("picky", kinds=("a",)), 1)])

    assert [name.name for name, _ in order] == ["picky", "any"]


def test_leftovers_go_round_one_step_each() -> None:
    assigned: dict[str, WorkersByNode] = {}
    grow_round_robin(
        FreeResources(cluster(1, 7)), [job("a"), job("b", max_workers=2), job("c", sizes=(1, 4))], assigned
    )

    assert {name: sum(workers.values()) for name, workers in assigned.items()} == {"a": 4, "b": 2, "c": 1}
