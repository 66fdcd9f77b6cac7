"""Placement that splits no job that fits on a node."""

from __future__ import annotations

from elasticdl.scheduler.policies.sia import assign_whole_nodes
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, WorkersByNode
from tests.unit.scheduler.policies.rules import cluster


def job(name: str, workers: WorkersByNode | None = None, **more: object) -> JobInfo:
    return JobInfo(name, 0.0, max_workers=64, workers=workers or {}, **more)  # type: ignore[arg-type]


def place_jobs(nodes: tuple[NodeInfo, ...], *desired: tuple[JobInfo, int]) -> dict[str, WorkersByNode]:
    return assign_whole_nodes(nodes, desired, {job_info.name: job_info for job_info, _ in desired})


def test_sizes_that_are_powers_of_two_always_fit() -> None:
    desired = [(job(f"j{index}"), size) for index, size in enumerate((1, 2, 8, 1, 4))]
    assigned = place_jobs(cluster(4), *desired)

    assert [sum(assigned[job_info.name].values()) for job_info, _ in desired] == [1, 2, 8, 1, 4]
    assert [len(assigned[job_info.name]) for job_info, _ in desired] == [1, 1, 2, 1, 1]


def test_whole_nodes_stay_when_small_jobs_must_move() -> None:
    large = job("large", {"n2": 4, "n3": 4})
    assigned = place_jobs(cluster(4), (large, 8), (job("a", {"n0": 2}), 2), (job("b", {"n1": 2}), 2), (job("new"), 4))

    assert assigned["large"] == {"n2": 4, "n3": 4}
    assert assigned["a"].keys() == assigned["b"].keys() != assigned["new"].keys()


def test_a_job_that_shrinks_or_grows_stays_on_its_node() -> None:
    assert place_jobs(cluster(3), (job("a", {"n1": 4}), 2), (job("b", {"n2": 1}), 2)) == {
        "a": {"n1": 2},
        "b": {"n2": 2},
    }


def test_a_split_job_is_consolidated() -> None:
    assert place_jobs(cluster(2), (job("a", {"n0": 2, "n1": 2}), 4)) == {"a": {"n0": 4}}


def test_a_job_is_split_before_it_waits() -> None:
    assigned = place_jobs(cluster(2, 3), (job("a"), 2), (job("b"), 2), (job("c", min_workers=2), 2))

    assert sum(len(workers) for workers in assigned.values()) == 4
    assert all(sum(workers.values()) == 2 for workers in assigned.values())


def test_large_jobs_only_take_nodes_that_are_free() -> None:
    assigned = place_jobs(cluster(3), (job("small", {"n0": 1}), 1), (job("large"), 8))

    assert assigned == {"small": {"n0": 1}, "large": {"n1": 4, "n2": 4}}


def test_an_unplaced_job_starts_where_devices_are_free() -> None:
    assert place_jobs(cluster(1), (job("a"), 2), (job("b"), 0)) == {"a": {"n0": 2}, "b": {"n0": 1}}
