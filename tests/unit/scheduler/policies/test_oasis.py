"""OASiS: a job is accepted with its complete schedule, or rejected."""

from __future__ import annotations

from dataclasses import replace

from elasticdl.scheduler.policies import load_policy
from elasticdl.scheduler.policies.oasis import Oasis
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, UtilityFunction
from tests.unit.scheduler.cases import Concave, applied, counts
from tests.unit.scheduler.policies.rules import check, cluster

SLOT = 1200.0
POLICY = Oasis(horizon_slots=12)


def job(name: str, slots: float = 1.0, **more: object) -> JobInfo:
    """Returns a job with this many slots of work for one worker."""
    return JobInfo(name, 0.0, work_left=slots * SLOT, **{"max_workers": 4, **more})  # type: ignore[arg-type]


def test_a_job_on_a_free_cluster_is_accepted_until_its_work_is_done() -> None:
    decision = POLICY.decide(Snapshot(0.0, cluster(1), (job("a", 8.0),)), None)
    slots = decision.memory.reserved["a"].workers

    assert counts(decision.plan)["a"] >= 1
    assert 8 <= sum(slots.values()) <= 9


def test_an_urgent_job_ends_early_and_a_patient_one_takes_the_fewest_devices() -> None:
    ends = {}
    for name, utility in (
        ("urgent", UtilityFunction(100.0, 1.0, 2.5 * SLOT)),
        ("patient", UtilityFunction(100.0, 0.0)),
    ):
        start_job = job(name, 4.0, rates=Concave(0.5), utility=utility)
        reserved = POLICY.decide(Snapshot(0.0, cluster(1), (start_job,)), None).memory.reserved[name]
        ends[name] = reserved.last_slot, max(reserved.workers.values())

    assert ends == {"urgent": (1, 4), "patient": (3, 1)}


def test_on_a_full_cluster_a_low_value_job_is_refused_and_a_high_value_job_reserves_later() -> None:
    full = [job(f"f{i}", 2.0, min_workers=4, utility=UtilityFunction(100.0, 1.0, 1.5 * SLOT)) for i in range(1)]
    cheap = replace(job("cheap", 2.0, utility=UtilityFunction(1e-9, 1.0, 1.0)), submitted_at=1.0)
    decision = POLICY.decide(Snapshot(2.0, cluster(1), (*full, cheap)), None)

    assert counts(decision.plan) == {"f0": 4, "cheap": 0}
    assert set(decision.memory.reserved) == {"f0"}
    assert "considered again in the next slot" in decision.plan.allocations["cheap"].reason


def test_a_rejected_job_uses_unreserved_devices() -> None:
    worthless = job("worthless", 2.0, utility=UtilityFunction(0.0, 1.0, 1.0))
    decision = POLICY.decide(Snapshot(0.0, cluster(1), (worthless,)), None)

    assert decision.memory.reserved == {}
    assert counts(decision.plan) == {"worthless": 4}


def test_a_reservation_is_kept_even_if_a_more_valuable_job_arrives() -> None:
    seen = Snapshot(
        0.0, cluster(1), (job("first", 8.0, min_workers=4, utility=UtilityFunction(10.0, 1.0, 2.5 * SLOT)),)
    )
    first = POLICY.decide(seen, None)
    later = applied(seen, first.plan, SLOT)
    worthier = replace(job("worthier", 4.0, utility=UtilityFunction(1e4, 0.0)), submitted_at=SLOT)
    second = POLICY.decide(replace(later, jobs=(*later.jobs, worthier)), first.memory)

    assert counts(first.plan) == {"first": 4}
    assert counts(second.plan) == {"first": 4, "worthier": 0}
    assert second.plan.allocations["worthier"].expected_wait_s == SLOT


def test_a_job_that_did_not_end_as_expected_reserves_again() -> None:
    seen = Snapshot(0.0, cluster(1), (JobInfo("a", 0.0),))
    first = POLICY.decide(seen, None)
    later = POLICY.decide(applied(seen, first.plan, 5 * SLOT), first.memory)

    assert first.memory.reserved["a"].last_slot == 0
    assert later.memory.reserved["a"].last_slot >= 5


def test_no_rule_is_broken_on_random_clusters() -> None:
    for seed in range(30):
        check(load_policy("oasis"), seed)
