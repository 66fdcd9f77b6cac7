"""`experiment --real`, scaled down once more: what it claims holds with real processes, however slow the machine is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from elasticdl.experiments.real_jobs import ExperimentJob, Scenario, run_scenario
from elasticdl.experiments.results import ExperimentResult

GANG, ELASTIC, COURTEOUS = "fifo-gang", "elastic-first-come", "max-min"

# A step of all ranks takes a worker a second.
TWO_JOBS = Scenario(3, (ExperimentJob("first", 0.0, 16, 1, 2, 2), ExperimentJob("second", 1.0, 4, 1, 2, 2)))
MIXED = Scenario(
    2,
    (
        ExperimentJob("training", 0.0, 100_000, 1, 2, 2, is_endless=True),
        ExperimentJob("service", 1.0, 2, 1, 1, 1, priority=10),
    ),
)


def played(scene: Scenario, *policies: str) -> list[ExperimentResult]:
    """At once, each with a scheduler and a home of its own: most of the time they sleep."""
    with ThreadPoolExecutor(len(policies)) as threads:
        return list(threads.map(lambda policy: run_scenario(policy, scene), policies))


def known(value: float | None) -> float:
    assert value is not None
    return value


def test_of_two_jobs_that_do_not_fit_the_second_waits_for_the_first_in_gangs_only() -> None:
    gang, elastic = played(TWO_JOBS, GANG, ELASTIC)

    first, second = gang.runs["first"], gang.runs["second"]
    assert known(second.started_at) >= known(first.ended_at) > second.submitted_at
    first, second = elastic.runs["first"], elastic.runs["second"]
    assert second.spans[0][0] < known(first.ended_at), "it had a worker before"
    assert known(second.waited_s) < known(gang.runs["second"].waited_s)
    for course in (gang, elastic):
        assert all(known(run.start_delay_s) > known(run.waited_s) for run in course.runs.values())
        assert 0 < course.utilization <= 1


def test_a_service_gets_its_slots_from_a_training_that_never_stops() -> None:
    for course in played(MIXED, ELASTIC, COURTEOUS):
        training, service = course.runs["training"], course.runs["service"]
        assert service.submitted_at <= known(service.started_at) < known(service.running_at) < known(training.ended_at)

        changes = sorted({at for run in course.runs.values() for start, end, _ in run.spans for at in (start, end)})
        assert known(training.ended_at) == changes[-1] == course.end_s
        has = course.devices_at(["training"], [at for at in changes[:-1] if at >= training.spans[0][0]])
        assert min(has) >= 1, "it never stops"
        assert max(has) == 2, "it has all while nobody else wants them"
        assert max(course.devices_at(["training", "service"], changes)) <= 2, "nobody has what another has"
