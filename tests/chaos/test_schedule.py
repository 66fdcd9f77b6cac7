"""The faults of a campaign are a pure function of its seed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.schedule import (
    MAX_FAULTS,
    MIN_FAULTS,
    POD_STRATEGIES,
    WITH_PS,
    Kind,
    Role,
    Strategy,
    plan_job,
    plan_pod_job,
)

SEEDS, NUMBERS = st.integers(0, 10**6), st.integers(0, 10**4)
KINDS = st.sets(st.sampled_from(Kind)).map(lambda kinds: frozenset({*kinds, Kind.KILL}))


@given(SEEDS, NUMBERS, KINDS)
def test_a_job_of_a_campaign_has_the_same_faults_whenever_it_is_planned(
    seed: int, number: int, kinds: frozenset[Kind]
) -> None:
    plan = plan_job(seed, number, kinds)

    assert plan == plan_job(seed, number, frozenset(sorted(kinds, reverse=True)))
    assert MIN_FAULTS <= len(plan.faults) <= MAX_FAULTS + 1
    assert plan.faults[0].delay_s > 0


@given(SEEDS, NUMBERS, KINDS)
def test_faults_have_possible_kinds_and_targets(seed: int, number: int, kinds: frozenset[Kind]) -> None:
    plan = plan_job(seed, number, kinds)

    for index, fault in enumerate(plan.faults):
        assert fault.kind in kinds
        assert 0 <= fault.target < 1 and 0 <= fault.strength < 1 and 0 <= fault.duration_s <= 5.1
        assert fault.role is not Role.PS or plan.strategy in WITH_PS
        assert fault.kind is not Kind.FLIP_JOURNAL or index == len(plan.faults) - 1


def test_a_campaign_has_all_kinds_of_all_roles_alone_and_in_pairs() -> None:
    jobs = [plan_job(1, number, frozenset(Kind)) for number in range(400)]

    faults = Counter((fault.kind, fault.role) for job in jobs for fault in job.faults)
    pairs = Counter(fault.delay_s == 0 for job in jobs for fault in job.faults)

    assert {kind for kind, _ in faults} == set(Kind)
    assert {role for _, role in faults} == set(Role) - {Role.OPERATOR, Role.API_SERVER}
    assert {job.strategy for job in jobs} == set(Strategy) - set(POD_STRATEGIES)
    assert sum(faults.values()) > 10_000 and pairs[True] > 1000
    assert min(faults.values()) >= 10, faults.most_common()[-3:]


def test_a_campaign_of_pods_also_hits_ps_operator_and_api_server() -> None:
    jobs = [plan_pod_job(1, number) for number in range(60)]

    faults = Counter((fault.kind, fault.role) for job in jobs for fault in job.faults)

    assert jobs == [plan_pod_job(1, number) for number in range(60)]
    assert {job.strategy for job in jobs} == set(POD_STRATEGIES)
    assert {role for _, role in faults} == {Role.WORKER, Role.PS, Role.MASTER, Role.OPERATOR, Role.API_SERVER, Role.JOB}
    assert min(faults.values()) >= 3, faults.most_common()[-3:]
    assert all(fault.role is not Role.PS for job in jobs if job.strategy is Strategy.PODS for fault in job.faults)


def test_a_job_of_pods_has_one_of_the_given_strategies() -> None:
    jobs = [plan_pod_job(1, number, [Strategy.PODS]) for number in range(20)]

    assert {job.strategy for job in jobs} == {Strategy.PODS}
    assert all(fault.role is not Role.PS for job in jobs for fault in job.faults)


def test_jobs_and_seeds_differ() -> None:
    plans = {plan_job(seed, number, frozenset(Kind)).faults for seed in range(20) for number in range(20)}

    assert len(plans) == 400
