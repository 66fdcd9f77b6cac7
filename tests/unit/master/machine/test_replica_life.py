"""The rules that hold for workers and ps alike."""

from __future__ import annotations

import pytest

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import LaunchReplica
from elasticdl.master.machine.membership import Replica
from elasticdl.spec import PsId, WorkerId
from tests.unit.master.driver import Driver, job_spec, log_kinds

ROLES = ["worker", "ps"]


def job() -> Driver:
    """A job whose workers and ps are launched but not connected."""
    driver = Driver(job_spec(workers=1, ps=1))
    driver.wait(1.0)
    return driver


def replica(driver: Driver, role: str) -> Replica:
    ledger = driver.machine.state.ledger
    return ledger.membership.workers[WorkerId("worker-0")] if role == "worker" else ledger.fleet.ps[PsId("ps-0")]


@pytest.mark.parametrize("role", ROLES)
def test_a_replica_that_the_launcher_does_not_know_is_launched_again(role: str) -> None:
    driver = job()

    actions = driver.do(ev.ReplicasListed((), ()))

    assert [(a.role, a.replica) for a in actions if isinstance(a, LaunchReplica) and a.role == role] == [
        (role, f"{role}-0")
    ]


@pytest.mark.parametrize("role", ROLES)
def test_a_started_replica_that_the_launcher_does_not_list_has_ended(role: str) -> None:
    driver = job()
    driver.do(ev.ReplicaStarted(f"{role}-0", 7))

    driver.do(ev.ReplicasListed((), ()))

    assert replica(driver, role).pid == 7
    assert replica(driver, role).has_exited and replica(driver, role).reason.startswith("ended while no launcher")


@pytest.mark.parametrize("role", ROLES)
def test_a_delay_is_logged_once_for_each_reason(role: str) -> None:
    driver = job()

    first = driver.do(ev.ReplicaDelayed(f"{role}-0", "no node has room"))
    again = driver.do(ev.ReplicaDelayed(f"{role}-0", "no node has room"))

    assert len(log_kinds(first)) == 1 and log_kinds(again) == []


@pytest.mark.parametrize("role", ROLES)
def test_an_exit_is_handled_once(role: str) -> None:
    driver = job()

    first = driver.do(ev.ReplicaExited(ev.ReplicaExit(f"{role}-0", 7, 1, None)))
    again = driver.do(ev.ReplicaExited(ev.ReplicaExit(f"{role}-0", 7, 1, None)))

    assert f"{role}-lost" in log_kinds(first) and f"{role}-lost" not in log_kinds(again)
    assert driver.machine.state.ledger.failure_budget.spent == 1


@pytest.mark.parametrize("role", ROLES)
def test_a_replica_that_fell_silent_is_lost_and_its_node_is_avoided(role: str) -> None:
    driver = job()

    actions = driver.do(ev.ReplicaFellSilent(replica(driver, role).id, "silent for 9.00 s"))

    assert f"{role}-lost" in log_kinds(actions)
    assert driver.machine.state.suspect_replicas(driver.now) == (f"{role}-0",)


@pytest.mark.parametrize("role", ROLES)
def test_a_lost_session_is_no_loss_yet(role: str) -> None:
    driver = job()
    replica(driver, role).is_connected = True

    actions = driver.do(ev.SessionLost(replica(driver, role).id))

    assert not replica(driver, role).is_connected and log_kinds(actions) == []
