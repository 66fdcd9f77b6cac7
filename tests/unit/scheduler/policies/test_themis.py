"""Themis: leases, finish-time fairness, and an auction in which lying does not pay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from elasticdl.scheduler.policies import load_policy
from elasticdl.scheduler.policies.themis import Bid, Themis, proportionally_fair_sizes, run_auction
from elasticdl.scheduler.snapshot import JobInfo, Snapshot
from tests.unit.scheduler.cases import applied, counts
from tests.unit.scheduler.policies.rules import check, cluster


def job(name: str, submitted_at: float = 0.0, left: float = 1e4, max_workers: int = 8) -> JobInfo:
    return JobInfo(name, submitted_at, max_workers=max_workers, work_left=left)


def bid(name: str, *rho: float) -> Bid:
    """For 0, 1, 2, … workers."""
    return Bid(job(name, max_workers=len(rho) - 1), tuple(range(len(rho))), np.array(rho))


def test_a_job_alone_pays_nothing() -> None:
    assert run_auction([bid("a", 4.0, 2.0, 1.0)], 2) == {"a": 2}


def test_fair_sizes_maximise_the_product_of_one_over_rho() -> None:
    bids = [bid("a", 8.0, 4.0, 2.0), bid("b", 9.0, 3.0, 2.9)]

    # (1, 1): 1/12; (2, 0): 1/18; (0, 2): 1/23.
    assert proportionally_fair_sizes(bids, 2) == [1, 1]


def test_two_equal_jobs_pay_half_of_their_winnings() -> None:
    table = (16.0, 8.0, 4.0, 8 / 3, 2.0, 8 / 5, 8 / 6, 8 / 7, 1.0)

    assert run_auction([bid("a", *table), bid("b", *table)], 8) == {"a": 2, "b": 2}


def test_a_job_that_takes_nothing_from_others_pays_nothing() -> None:
    assert run_auction([bid("a", 4.0, 2.0), bid("b", 9.0, 3.0)], 2) == {"a": 1, "b": 1}


def test_overstating_unfairness_gains_nothing() -> None:
    other_bid = bid("b", 16.0, 8.0, 4.0, 8 / 3, 2.0)
    honest = run_auction([bid("a", 16.0, 8.0, 4.0, 8 / 3, 2.0), other_bid], 4)
    liar = run_auction([bid("a", 160.0, 8.0, 4.0, 8 / 3, 2.0), other_bid], 4)

    assert liar["a"] <= honest["a"]


def test_devices_left_by_payments_are_also_allocated() -> None:
    seen = Snapshot(0.0, cluster(2), (job("a"), job("b")))

    assert sum(counts(Themis().decide(seen, None).plan).values()) == 8


def test_a_job_keeps_its_lease_even_if_a_worse_off_job_arrives() -> None:
    seen = Snapshot(0.0, cluster(1), (job("a"),))
    first = Themis().decide(seen, None)
    later = applied(seen, first.plan, 300.0)
    second = Themis().decide(replace(later, jobs=(*later.jobs, job("b", 300.0))), first.memory)

    assert counts(second.plan) == {"a": 4, "b": 0}
    assert second.plan.allocations["b"].expected_wait_s == 300.0


def test_after_its_lease_a_job_makes_room_for_one_that_is_worse_off() -> None:
    seen = Snapshot(0.0, cluster(1), (job("a", left=1e6),))
    first = Themis().decide(seen, None)
    later = applied(seen, first.plan, 601.0)
    short = job("short", 1.0, left=10.0, max_workers=1)
    second = Themis().decide(replace(later, jobs=(*later.jobs, short)), first.memory)

    assert counts(second.plan) == {"a": 3, "short": 1}


def test_only_the_worst_off_bid_first() -> None:
    """The worst of five jobs bids and takes what it wants; the others share the rest."""
    jobs = (job("late", 0.0, left=10.0, max_workers=4), *(job(f"new{i}", 999.0) for i in range(4)))

    plan_counts = counts(Themis().decide(Snapshot(1000.0, cluster(1, 6), jobs), None).plan)

    assert plan_counts == {"late": 4, "new0": 1, "new1": 1, "new2": 0, "new3": 0}


def test_no_rule_is_broken_on_random_clusters() -> None:
    for seed in range(60):
        check(load_policy("themis"), seed)
