"""Guaranteed jobs in gangs, opportunistic ones on what they leave."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.errors import SpecError
from elasticdl.scheduler.policies import load_policy
from elasticdl.scheduler.policies.antman import AntMan, parse_quotas
from elasticdl.scheduler.snapshot import NodeInfo
from tests.unit.scheduler.cases import counts, decide, job, nodes, running, workers_of

POLICY = AntMan()


def test_an_opportunistic_job_makes_room_for_a_guaranteed_one() -> None:
    guest, owner = running("guest", {"n0": 4}, 4, is_guaranteed=False), job("owner", 3, submitted_at=9.0)

    assert counts(decide(POLICY, nodes(4), guest, owner)) == {"guest": 0, "owner": 3}


def test_an_opportunistic_job_stays_if_another_node_is_idle() -> None:
    guest, owner = running("guest", {"n0": 4}, 4, is_guaranteed=False), job("owner", 3, submitted_at=9.0)

    assert workers_of(decide(POLICY, nodes(4, 4), guest, owner)) == {"guest": {"n0": 4}, "owner": {"n1": 3}}


def test_a_guaranteed_job_over_its_quota_runs_on_what_is_idle() -> None:
    first, second = job("a", 3, queue="ads"), job("b", 3, queue="ads", submitted_at=1.0)
    policy = load_policy("antman:quotas=ads=4/search=8")

    decision = decide(policy, nodes(8), first, second)

    assert counts(decision) == {"a": 3, "b": 3}
    assert decision.memory.admitted == {"a"}
    assert "its queue 'ads' has 3 of 4 devices" in decision.plan.allocations["b"].reason
    owner = job("c", 3, queue="search", submitted_at=9.0)
    then = decide(policy, nodes(8), running("a", {"n0": 3}, 3, queue="ads"), second, owner, memory=decision.memory)
    assert then.memory.admitted == {"a", "c"}


def test_devices_reserved_for_one_group_are_lent_to_another() -> None:
    jobs = running("a", {"n0": 2}, 2), job("large", 4, submitted_at=1.0), job("small", 2, submitted_at=2.0)

    decision = decide(POLICY, nodes(4), *jobs)

    assert counts(decision) == {"a": 2, "large": 0, "small": 2}
    assert decision.memory.admitted == {"a"}
    assert "reserved for large" in decision.plan.allocations["small"].reason


def test_an_opportunistic_job_shares_devices_that_are_used_little() -> None:
    owner = running("owner", {"n0": 2}, 2, may_share=True, device_use=0.7)
    guest = job("guest", 2, is_guaranteed=False, may_share=True, device_use=0.9)

    plan = decide(POLICY, nodes(2), owner, guest).plan

    assert counts(plan) == {"owner": 2, "guest": 2}
    assert (plan.allocations["owner"].share, plan.allocations["guest"].share) == (0.7, pytest.approx(0.3))


@pytest.mark.parametrize("more", [{"device_use": 0.8}, {"may_share": False}])
def test_busy_or_exclusive_devices_are_not_shared(more: dict[str, Any]) -> None:
    owner = running("owner", {"n0": 2}, 2, **dict[str, Any]({"may_share": True, "device_use": 0.7, **more}))
    guest = job("guest", 2, is_guaranteed=False, may_share=True)

    assert counts(decide(POLICY, nodes(2), owner, guest)) == {"owner": 2, "guest": 0}


def test_quotas_are_parsed_or_refused() -> None:
    assert parse_quotas("ads=16/search=8") == {"ads": 16, "search": 8}
    with pytest.raises(SpecError, match="expected quotas such as ads=16/search=8, received 'ads'"):
        parse_quotas("ads")


def test_a_guest_needs_memory_too() -> None:
    cluster = (NodeInfo("n0", 2, resources={"memory": 3.0}),)
    owner = running("owner", {"n0": 2}, 2, may_share=True, device_use=0.1, request={"memory": 1.0})
    guest = job("guest", 2, is_guaranteed=False, may_share=True, request={"memory": 1.0})

    decision = decide(POLICY, cluster, owner, guest)

    assert counts(decision) == {"owner": 2, "guest": 0}
    assert decision.plan.allocations["owner"].share == 1.0


def test_a_job_that_lost_its_nodes_stays_first_in_line() -> None:
    hurt, neighbour = running("hurt", {"gone": 3}, 3, submitted_at=5.0), job("other", 2)

    decision = decide(POLICY, nodes(2), hurt, neighbour)

    assert counts(decision) == {"hurt": 0, "other": 2}
    assert decision.memory.admitted == {"hurt"}
