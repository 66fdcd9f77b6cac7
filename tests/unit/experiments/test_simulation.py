"""The original's experiments give its results or better ones."""

from __future__ import annotations

import pytest

from elasticdl.experiments import simulation


def test_gang_jobs_end_at_the_times_of_the_original_experiment() -> None:
    course = simulation.simulate_two_jobs("fifo-gang")

    assert course.runs["first"].ended_at == pytest.approx(650.0)
    assert course.runs["second"].waited_s == pytest.approx(350.0)
    assert course.end_s == pytest.approx(1300.0)


@pytest.mark.parametrize("policy", ["elastic-first-come", "max-min"])
def test_elastic_jobs_do_not_wait_and_end_before_the_original_ones(policy: str) -> None:
    gang, course = simulation.simulate_two_jobs("fifo-gang"), simulation.simulate_two_jobs(policy)

    assert course.runs["second"].waited_s == 0
    assert course.end_s < simulation.CLAIMED_ELASTIC_END_S
    assert course.utilization > gang.utilization + 0.1


def test_both_jobs_complete_all_their_work() -> None:
    """First come: 175 workers until 650 s for the first, 145 and then 175 for the second; newcomers join later."""
    course = simulation.simulate_two_jobs("elastic-first-come")
    work = (650.0 - 5.9) * 175
    done = (650.0 - 300.0 - 5.9) * 145
    remaining_s = (work - done - 3.4 * 145) / 175  # the others go on while thirty newcomers join

    assert course.end_s == pytest.approx(650.0 + 3.4 + 0.4 + remaining_s, abs=1.0)


@pytest.mark.parametrize("policy", ["elastic-first-come", "max-min"])
def test_training_uses_the_cpus_the_service_leaves_and_the_service_never_waits(policy: str) -> None:
    course = simulation.simulate_mixed(policy)
    service = [run for name, run in course.runs.items() if name.startswith(simulation.SERVICE)]

    assert course.utilization > simulation.CLAIMED_UTILIZATION
    assert len(service) > 20
    assert {run.waited_s for run in service} == {0.0}
    assert [run.start_delay_s for run in service] == [pytest.approx(simulation.COST.start_s)] * len(service)


def test_the_load_of_the_service_equals_its_demand_at_every_moment() -> None:
    loads = simulation.service_loads()

    for now in range(0, 3600, 60):
        assert sum(load.cpus for load in loads if load.start_s <= now < load.end_s) == simulation.service_demand(
            float(now)
        )
    assert max(simulation.service_demand(float(now)) for now in range(0, 3600, 60)) <= simulation.MAX_LOAD
