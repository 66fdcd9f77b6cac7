"""What a cluster does to pods: nothing of it counts as a failure, waiting is told, and memory is raised."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.master.kubernetes.backend import find_scale_request
from elasticdl.master.machine import actions as act
from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import Action
from elasticdl.spec import ClusterSpec, WorkerId
from tests.unit.master.driver import Driver, job_spec

CLUSTER = {"image": "elasticdl:ci", "worker": {"requests": {"memory": "1Gi"}}}


def driver(**changes: Any) -> Driver:
    cluster = ClusterSpec.model_validate(CLUSTER | changes)
    return Driver(job_spec().model_copy(update={"cluster": cluster}))


def exit_(made: Driver, worker: str, cause: str, why: str = "", code: int | None = None) -> list[Action]:
    return made.do(ev.ReplicaExited(ev.ReplicaExit(worker, 1, code, None, cause, why)))


def launches(actions: list[Action]) -> list[act.LaunchReplica]:
    return [action for action in actions if isinstance(action, act.LaunchReplica)]


def notes(actions: list[Action], kind: str) -> list[str]:
    return [a.entry.reason for a in actions if isinstance(a, act.WriteLogEntry) and a.entry.kind == kind]


@pytest.mark.parametrize("cause", ["preempted", "evicted", "drained", "deleted", "node-lost"])
def test_what_the_cluster_takes_away_is_replaced_and_costs_no_failure(cause: str) -> None:
    made = driver()
    made.join("worker-0", "worker-1")
    actions = exit_(made, "worker-1", cause, "to make room for web-7", code=137)
    actions += made.wait(5.0)

    assert notes(actions, "worker-lost") == [f"{cause}: to make room for web-7"]
    assert [one.replica for one in launches(actions)] == ["worker-2"]
    assert made.machine.state.ledger.failure_budget.spent == 0
    assert made.replayed().dump_ledger() == made.machine.dump_ledger()


def test_a_pod_that_waits_says_why_once_for_each_reason() -> None:
    made = driver()
    made.wait(0.0)
    words = "0/2 nodes are available: 2 Insufficient cpu."
    assert notes(made.do(ev.ReplicaDelayed("worker-0", words)), "worker-delayed") == [words]
    assert not notes(made.do(ev.ReplicaDelayed("worker-0", words)), "worker-delayed")
    assert not notes(made.do(ev.ReplicaDelayed("worker-0", "is being started", False)), "worker-delayed"), "no trouble"
    assert notes(made.do(ev.ReplicaDelayed("worker-0", "ErrImagePull")), "worker-delayed") == ["ErrImagePull"]
    assert made.machine.state.ledger.membership.workers[WorkerId("worker-0")].is_active, "it stays asked for"


def test_a_worker_out_of_memory_comes_back_with_half_as_much_again_until_that_is_all() -> None:
    made = driver(max_memory="2Gi")
    made.join("worker-0", "worker-1")
    actions = exit_(made, "worker-1", "oom", code=137)
    actions += made.wait(2.0)
    assert notes(actions, "memory-raised") == ["worker pods get 1536Mi from now on, 1Gi was not enough"]
    assert [(one.replica, one.memory_raises) for one in launches(actions)] == [("worker-2", 1)]
    assert made.machine.state.ledger.failure_budget.spent == 0

    actions = exit_(made, "worker-0", "oom", code=137) + made.wait(2.0)
    assert not notes(actions, "memory-raised"), "it had as little as the first"
    assert [one.memory_raises for one in launches(actions)] == [1]

    actions = exit_(made, "worker-2", "oom", code=137) + made.wait(2.0)
    assert notes(actions, "memory-raised") == ["worker pods get 2048Mi from now on, 1536Mi was not enough"]
    actions = exit_(made, "worker-4", "oom", code=137) + made.wait(2.0)
    assert "the most allowed" in notes(actions, "worker-lost")[0]
    assert made.machine.state.ledger.failure_budget.spent == 1
    assert made.replayed().dump_ledger() == made.machine.dump_ledger()


@pytest.mark.parametrize(
    ("before", "after", "asked"),
    [
        ({"replicas": 2}, {"replicas": 3}, ev.ScaleRequested(3, 0)),
        (None, {"replicas": 3}, ev.ScaleRequested(3, 0)),  # while the master was away
        (None, {"replicas": 2}, None),  # the job as it is
        ({"replicas": 3}, {"replicas": 3}, None),  # a change of the status: `elasticdl scale` stands
        ({"replicas": 2}, {"replicas": 9}, None),  # above the max it was begun with
        ({"replicas": 2}, None, None),
    ],
)
def test_a_wish_of_the_elastic_job_is_followed_when_it_changes_and_only_then(
    before: dict[str, int] | None, after: dict[str, int] | None, asked: ev.ScaleRequested | None
) -> None:
    resources = [None if one is None else {"spec": {"workers": one}} for one in (before, after)]
    assert find_scale_request(resources[0], resources[1], job_spec().workers, ev.ScaleRequested(2, 0)) == asked


def test_a_wish_for_ps_is_followed_by_a_job_that_has_some() -> None:
    before, after = ({"spec": {"workers": {"replicas": 2}, "ps": {"replicas": workers}}} for workers in (2, 3))
    limits = job_spec().workers
    assert find_scale_request(before, after, limits, ev.ScaleRequested(2, 2)) == ev.ScaleRequested(0, 3)
    assert find_scale_request(before, after, limits, ev.ScaleRequested(2, 0)) is None
