"""AFS: the job that gets the next device."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from elasticdl.scheduler.policies import load_policy
from elasticdl.scheduler.policies.afs import Afs
from elasticdl.scheduler.snapshot import JobInfo, Snapshot
from tests.unit.scheduler.cases import Concave, applied, counts
from tests.unit.scheduler.policies.rules import check, cluster

AFS_P = Afs("afs-p", knows_length=False)


def job(name: str, left: float | None = None, power: float = 0.8, **more: object) -> JobInfo:
    return JobInfo(name, 0.0, max_workers=8, rates=Concave(power, apart=1.0), work_left=left, **more)  # type: ignore[arg-type]


def decide(policy: Afs, *jobs: JobInfo, devices: int = 4, memory: Mapping[str, float] | None = None) -> dict[str, int]:
    return counts(policy.decide(Snapshot(0.0, cluster(1, devices), jobs), memory).plan)


def test_every_job_starts_before_any_grows_if_scaling_is_worse_than_linear() -> None:
    plan_counts = decide(Afs(), *(job(name, left) for name, left in (("a", 10.0), ("b", 1e3), ("c", 1e5), ("d", 1e7))))

    assert plan_counts == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_the_longest_job_waits_if_there_are_fewer_devices_than_jobs() -> None:
    assert decide(Afs(), job("a", 1e5), job("b", 10.0), job("c", 1e3), devices=2) == {"a": 0, "b": 1, "c": 1}


def test_of_two_jobs_that_scale_equally_the_shorter_gets_more() -> None:
    assert decide(Afs(), job("long", 1e6), job("short", 1e3), devices=7) == {"long": 3, "short": 4}


def test_ties_go_to_the_shorter_job() -> None:
    """Linear: (2 - 1) / 1 of the short one is not less than 1 of the long one without devices, nor 1/2 than 1/2."""
    assert decide(Afs(), job("long", 1e6, 1.0), job("short", 1e3, 1.0)) == {"long": 1, "short": 3}


def test_a_long_job_gets_devices_that_a_short_one_hardly_uses() -> None:
    plan_counts = decide(Afs(), job("short", 1e3, 0.2), job("long", 1e6, 0.95), devices=8)

    # The next device would gain the short one 1.08 - 1 = 8 %, the long one at six 1 - (6/7)**0.95 = 14 %.
    assert plan_counts == {"short": 2, "long": 6}


def test_no_job_gets_a_device_that_makes_it_slower() -> None:
    assert decide(Afs(), job("a", 1e3, -0.1)) == {"a": 1}


def test_jobs_of_unknown_length_share_evenly() -> None:
    assert decide(Afs(), job("a"), job("b"), devices=8) == {"a": 4, "b": 4}


def test_without_lengths_the_job_that_scales_better_gets_more() -> None:
    plan_counts = decide(AFS_P, job("good", 1.0, 1.0), job("bad", 1e9, 0.3), devices=8)

    assert plan_counts["good"] > plan_counts["bad"] >= 1


def test_packed_shares_are_factors_and_multiples_of_a_node() -> None:
    nodes = cluster(4, 4)
    snapshot = Snapshot(0.0, nodes, (JobInfo("a", 0.0, max_workers=15),))

    assert counts(Afs(sizes_divide_nodes=True).decide(snapshot, None).plan) == {"a": 12}
    assert counts(Afs().decide(snapshot, None).plan) == {"a": 15}


def test_a_minimum_is_given_at_once_or_not_at_all() -> None:
    wide = JobInfo("wide", 0.0, min_workers=3, max_workers=8, work_left=10.0)

    assert decide(Afs(), wide, devices=2) == {"wide": 0}
    assert decide(Afs(), wide, devices=3) == {"wide": 3}


def test_if_not_all_jobs_can_run_the_least_executed_take_turns() -> None:
    jobs = (job("a", executed_s=50.0), job("b", executed_s=10.0), job("c", executed_s=30.0))
    seen = Snapshot(0.0, cluster(1, 2), jobs)
    first = AFS_P.decide(seen, None)
    within = AFS_P.decide(applied(seen, first.plan, 7100.0), first.memory)
    after = AFS_P.decide(applied(seen, first.plan, 7300.0), first.memory)

    assert counts(first.plan) == {"a": 0, "b": 1, "c": 1}
    assert counts(within.plan) == {"a": 0, "b": 1, "c": 1}
    assert counts(after.plan) == {"a": 1, "b": 1, "c": 0}


@pytest.mark.parametrize("name", ["afs-l", "afs-p", "afs-l:sizes_divide_nodes=yes"])
def test_no_rule_is_broken_on_random_clusters(name: str) -> None:
    for seed in range(60):
        check(load_policy(name), seed)
