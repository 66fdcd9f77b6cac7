"""Jobs move onto fewer nodes if that pays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.scheduler.interface import BatchConfig, Floats
from elasticdl.scheduler.placement.consolidation import consolidate
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, PlacementConstraint, WorkersByNode

NODES = (NodeInfo("a", 4), NodeInfo("b", 4), NodeInfo("c", 4))


@dataclass(frozen=True)
class SlowBetweenNodes:
    """Half as fast on several nodes."""

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        return np.asarray(workers, float) / np.where(np.asarray(nodes) > 1, 2.0, 1.0)

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        return None


def job(
    name: str, workers: WorkersByNode, cost_s: float = 1.0, constraints: tuple[PlacementConstraint, ...] = ()
) -> JobInfo:
    return JobInfo(
        name, 0.0, 1, 8, workers=workers, change_cost_s=cost_s, rates=SlowBetweenNodes(), constraints=constraints
    )  # fmt: skip


def assigned_to(*jobs: JobInfo) -> dict[str, WorkersByNode]:
    return {spread_job.name: spread_job.workers for spread_job in jobs}


def test_a_spread_job_comes_onto_one_node_that_is_free() -> None:
    spread = job("spread", {"a": 2, "b": 2})

    assert consolidate(NODES, [spread], assigned_to(spread), 600.0) == {"spread": {"a": 4}}


def test_a_small_job_makes_way_for_a_spread_one() -> None:
    jobs = [job("spread", {"a": 3, "b": 1}), job("small", {"a": 1}), job("full", {"c": 4}), job("other", {"b": 2})]

    consolidated = consolidate(NODES, jobs, assigned_to(*jobs), 600.0)

    assert consolidated == {"spread": {"a": 4}, "small": {"b": 1}, "full": {"c": 4}, "other": {"b": 2}}


def test_no_job_moves_where_it_costs_more_than_it_brings() -> None:
    jobs = [job("spread", {"a": 3, "b": 1}, cost_s=700.0), job("small", {"a": 1}), job("full", {"c": 4})]
    jobs.append(job("other", {"b": 2}))

    assert consolidate(NODES, jobs, assigned_to(*jobs), 600.0) == assigned_to(*jobs)


def test_a_job_with_constraints_is_not_moved_away() -> None:
    pinned = job("pinned", {"a": 1}, constraints=(PlacementConstraint(1),))
    jobs = [job("spread", {"a": 3, "b": 1}), pinned, job("full", {"c": 4}), job("other", {"b": 2})]

    assert consolidate(NODES, jobs, assigned_to(*jobs), 600.0) == assigned_to(*jobs)


def test_a_job_that_needs_several_nodes_stays_on_them() -> None:
    wide = job("wide", {"a": 4, "b": 4})

    assert consolidate(NODES, [wide], assigned_to(wide), 600.0) == assigned_to(wide)
