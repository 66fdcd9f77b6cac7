"""Max-min: jobs of equal priority make room for each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.scheduler.placement.assignment import next_size
from elasticdl.scheduler.policies.max_min import MaxMin, max_min_sizes
from elasticdl.scheduler.snapshot import JobInfo
from tests.unit.scheduler.cases import counts, decide, job, nodes, running, workers_of

POLICY = MaxMin()


def test_a_new_job_gets_an_equal_share_from_a_larger_one() -> None:
    decision = decide(POLICY, nodes(4, 4), running("old", {"n0": 4, "n1": 4}, 1, 8), job("new", 1, 8, submitted_at=5.0))

    assert counts(decision) == {"old": 4, "new": 4}


def test_no_job_shrinks_below_its_minimum_for_a_job_of_equal_priority() -> None:
    decision = decide(POLICY, nodes(6), running("old", {"n0": 6}, 5, 6, submitted_at=9.0), job("new", 2, 6))

    assert counts(decision) == {"old": 6, "new": 0}


def test_devices_that_one_job_cannot_use_are_divided_among_the_others() -> None:
    jobs = job("a", 1, 2), job("b", 1, 9, submitted_at=1.0), job("c", 1, 9, submitted_at=2.0)

    assert counts(decide(POLICY, nodes(8, 4), *jobs)) == {"a": 2, "b": 5, "c": 5}


def test_an_odd_device_is_not_moved() -> None:
    early, late = running("early", {"n0": 3}, 1, 9), running("late", {"n0": 4}, 1, 9, submitted_at=5.0)

    assert workers_of(decide(POLICY, nodes(7), early, late)) == {"early": {"n0": 3}, "late": {"n0": 4}}


def test_shares_are_equal_in_devices_not_workers() -> None:
    assert counts(decide(POLICY, nodes(8), job("wide", 1, 9, devices=2), job("thin", 1, 9))) == {"wide": 2, "thin": 4}


@st.composite
def queues(draw: st.DrawFn) -> list[JobInfo]:
    sizes = []
    for index in range(draw(st.integers(1, 6))):
        least, more, has = draw(st.integers(1, 4)), draw(st.integers(0, 6)), draw(st.integers(0, 4))
        workers = {"n0": min(least + has, least + more)} if has else {}
        sizes.append(JobInfo(f"j{index}", float(index), least, least + more, workers=workers))
    return sizes


@given(queues(), st.integers(1, 30))
def test_no_job_could_have_more_without_a_poorer_one_having_less(queue: list[JobInfo], devices: int) -> None:
    sizes = max_min_sizes(queue, devices)

    assert sum(sizes.values()) <= devices
    for poor in queue:
        if poor.name in sizes and next_size(poor, sizes[poor.name]):
            assert sum(sizes.values()) == devices
            rich = [
                job_info
                for job_info in queue
                if sizes.get(job_info.name, 0) > max(sizes[poor.name] + 1, job_info.min_workers)
            ]
            assert not rich
