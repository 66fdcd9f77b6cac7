"""What a cluster does to pods: preemption is no failure, waiting is reported, and memory is raised."""

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


def new_driver(**changes: Any) -> Driver:
    cluster = ClusterSpec.model_validate(CLUSTER | changes)
    return Driver(job_spec().model_copy(update={"cluster": cluster}))


def exit_pod(driver: Driver, worker: str, cause: str, reason: str = "", code: int | None = None) -> list[Action]:
    return driver.do(ev.ReplicaExited(ev.ReplicaExit(worker, 1, code, None, cause, reason)))


def launches(actions: list[Action]) -> list[act.LaunchReplica]:
    return [action for action in actions if isinstance(action, act.LaunchReplica)]


def log_reasons(actions: list[Action], kind: str) -> list[str]:
    return [
        action.entry.reason for action in actions if isinstance(action, act.WriteLogEntry) and action.entry.kind == kind
    ]


@pytest.mark.parametrize("cause", ["preempted", "evicted", "drained", "deleted", "node-lost"])
def test_a_pod_that_the_cluster_removes_is_replaced_and_is_no_failure(cause: str) -> None:
    driver = new_driver()
    driver.join("worker-0", "worker-1")
    actions = exit_pod(driver, "worker-1", cause, "to make room for web-7", code=137)
    actions += driver.wait(5.0)

    assert log_reasons(actions, "worker-lost") == [f"{cause}: to make room for web-7"]
    assert [launch.replica for launch in launches(actions)] == ["worker-2"]
    assert driver.machine.state.ledger.failure_budget.spent == 0
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_a_waiting_pod_is_reported_once_for_each_reason() -> None:
    driver = new_driver()
    driver.wait(0.0)
    reason = "0/2 nodes are available: 2 Insufficient cpu."
    assert log_reasons(driver.do(ev.ReplicaDelayed("worker-0", reason)), "worker-delayed") == [reason]
    assert not log_reasons(driver.do(ev.ReplicaDelayed("worker-0", reason)), "worker-delayed")
    assert not log_reasons(driver.do(ev.ReplicaDelayed("worker-0", "is being started", False)), "worker-delayed"), (
        "no trouble"
    )
    assert log_reasons(driver.do(ev.ReplicaDelayed("worker-0", "ErrImagePull")), "worker-delayed") == ["ErrImagePull"]
    assert driver.machine.state.ledger.membership.workers[WorkerId("worker-0")].is_active, "it is still desired"


def test_a_worker_out_of_memory_is_replaced_with_half_as_much_again_up_to_the_limit() -> None:
    driver = new_driver(max_memory="2Gi")
    driver.join("worker-0", "worker-1")
    actions = exit_pod(driver, "worker-1", "oom", code=137)
    actions += driver.wait(2.0)
    assert log_reasons(actions, "memory-raised") == ["worker pods get 1536Mi from now on, 1Gi was not enough"]
    assert [(launch.replica, launch.memory_raises) for launch in launches(actions)] == [("worker-2", 1)]
    assert driver.machine.state.ledger.failure_budget.spent == 0

    actions = exit_pod(driver, "worker-0", "oom", code=137) + driver.wait(2.0)
    assert not log_reasons(actions, "memory-raised"), "it had as little as the first"
    assert [launch.memory_raises for launch in launches(actions)] == [1]

    actions = exit_pod(driver, "worker-2", "oom", code=137) + driver.wait(2.0)
    assert log_reasons(actions, "memory-raised") == ["worker pods get 2048Mi from now on, 1536Mi was not enough"]
    actions = exit_pod(driver, "worker-4", "oom", code=137) + driver.wait(2.0)
    assert "the maximum" in log_reasons(actions, "worker-lost")[0]
    assert driver.machine.state.ledger.failure_budget.spent == 1
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"replicas": 2}, {"replicas": 3}, ev.ScaleRequested(3, 0)),
        (None, {"replicas": 3}, ev.ScaleRequested(3, 0)),  # while the master was away
        (None, {"replicas": 2}, None),  # the job as it is
        ({"replicas": 3}, {"replicas": 3}, None),  # a change of the status: `elasticdl scale` stands
        ({"replicas": 2}, {"replicas": 9}, None),  # above the max it was begun with
        ({"replicas": 2}, None, None),
    ],
)
def test_a_change_of_replicas_in_the_elastic_job_is_a_request_to_scale(
    before: dict[str, int] | None, after: dict[str, int] | None, expected: ev.ScaleRequested | None
) -> None:
    resources = [None if workers is None else {"spec": {"workers": workers}} for workers in (before, after)]
    assert find_scale_request(resources[0], resources[1], job_spec().workers, ev.ScaleRequested(2, 0)) == expected


def test_a_request_for_ps_is_followed_only_by_a_job_that_has_ps() -> None:
    before, after = ({"spec": {"workers": {"replicas": 2}, "ps": {"replicas": replicas}}} for replicas in (2, 3))
    limits = job_spec().workers
    assert find_scale_request(before, after, limits, ev.ScaleRequested(2, 2)) == ev.ScaleRequested(0, 3)
    assert find_scale_request(before, after, limits, ev.ScaleRequested(2, 0)) is None
