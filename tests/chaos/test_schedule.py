"""The faults of a campaign are a pure function of its seed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.schedule import LEAST, MOST, POD_STRATEGIES, WITH_PS, Kind, Role, Strategy, plan, pod_plan

SEEDS, NUMBERS = st.integers(0, 10**6), st.integers(0, 10**4)
KINDS = st.sets(st.sampled_from(Kind)).map(lambda some: frozenset({*some, Kind.KILL}))


@given(SEEDS, NUMBERS, KINDS)
def test_a_job_of_a_campaign_has_the_same_faults_whenever_it_is_asked(
    seed: int, number: int, kinds: frozenset[Kind]
) -> None:
    one = plan(seed, number, kinds)

    assert one == plan(seed, number, frozenset(sorted(kinds, reverse=True)))
    assert LEAST <= len(one.faults) <= MOST + 1
    assert one.faults[0].after_s > 0


@given(SEEDS, NUMBERS, KINDS)
def test_only_what_can_be_struck_is_struck(seed: int, number: int, kinds: frozenset[Kind]) -> None:
    found = plan(seed, number, kinds)

    for place, fault in enumerate(found.faults):
        assert fault.kind in kinds
        assert 0 <= fault.which < 1 and 0 <= fault.strength < 1 and 0 <= fault.lasts_s <= 5.1
        assert fault.role is not Role.PS or found.strategy in WITH_PS
        assert fault.kind is not Kind.FLIP_JOURNAL or place == len(found.faults) - 1


def test_a_campaign_has_all_kinds_of_all_roles_alone_and_in_pairs() -> None:
    jobs = [plan(1, number, frozenset(Kind)) for number in range(400)]

    struck = Counter((fault.kind, fault.role) for job in jobs for fault in job.faults)
    pairs = Counter(fault.after_s == 0 for job in jobs for fault in job.faults)

    assert {kind for kind, _ in struck} == set(Kind)
    assert {role for _, role in struck} == set(Role) - {Role.OPERATOR, Role.API_SERVER}
    assert {job.strategy for job in jobs} == set(Strategy) - set(POD_STRATEGIES)
    assert sum(struck.values()) > 10_000 and pairs[True] > 1000
    assert min(struck.values()) >= 10, struck.most_common()[-3:]


def test_a_campaign_of_pods_strikes_ps_operator_and_api_server_too() -> None:
    jobs = [pod_plan(1, number) for number in range(60)]

    struck = Counter((fault.kind, fault.role) for job in jobs for fault in job.faults)

    assert jobs == [pod_plan(1, number) for number in range(60)]
    assert {job.strategy for job in jobs} == set(POD_STRATEGIES)
    assert {role for _, role in struck} == {Role.WORKER, Role.PS, Role.MASTER, Role.OPERATOR, Role.API_SERVER, Role.JOB}
    assert min(struck.values()) >= 3, struck.most_common()[-3:]
    assert all(fault.role is not Role.PS for job in jobs if job.strategy is Strategy.PODS for fault in job.faults)


def test_a_job_of_pods_has_a_strategy_that_its_campaign_had_then() -> None:
    jobs = [pod_plan(1, number, [Strategy.PODS]) for number in range(20)]

    assert {job.strategy for job in jobs} == {Strategy.PODS}
    assert all(fault.role is not Role.PS for job in jobs for fault in job.faults)


def test_jobs_and_seeds_differ() -> None:
    found = {plan(seed, number, frozenset(Kind)).faults for seed in range(20) for number in range(20)}

    assert len(found) == 400
