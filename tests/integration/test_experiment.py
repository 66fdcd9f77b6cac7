"""`experiment --real`, scaled down: its claims hold with real processes, also on a slow machine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from elasticdl.experiments.real_jobs import ExperimentJob, Scenario, run_scenario
from elasticdl.experiments.results import ExperimentResult

GANG, ELASTIC, MAX_MIN = "fifo-gang", "elastic-first-come", "max-min"

# A step of all ranks takes a worker a second.
TWO_JOBS = Scenario(3, (ExperimentJob("first", 0.0, 16, 1, 2, 2), ExperimentJob("second", 1.0, 4, 1, 2, 2)))
MIXED = Scenario(
    2,
    (
        ExperimentJob("training", 0.0, 100_000, 1, 2, 2, is_endless=True),
        ExperimentJob("service", 1.0, 2, 1, 1, 1, priority=10),
    ),
)


def run_experiments(scene: Scenario, *policies: str) -> list[ExperimentResult]:
    """Runs experiments concurrently, each with its own scheduler and home: most of the time they sleep."""
    with ThreadPoolExecutor(len(policies)) as threads:
        return list(threads.map(lambda policy: run_scenario(policy, scene), policies))


def require(value: float | None) -> float:
    assert value is not None
    return value


def test_the_second_of_two_jobs_that_do_not_fit_waits_only_with_gang_scheduling() -> None:
    gang, elastic = run_experiments(TWO_JOBS, GANG, ELASTIC)

    first, second = gang.runs["first"], gang.runs["second"]
    assert require(second.started_at) >= require(first.ended_at) > second.submitted_at
    first, second = elastic.runs["first"], elastic.runs["second"]
    assert second.spans[0][0] < require(first.ended_at), "it had a worker before"
    assert require(second.waited_s) < require(gang.runs["second"].waited_s)
    for result in (gang, elastic):
        assert all(require(run.start_delay_s) > require(run.waited_s) for run in result.runs.values())
        assert 0 < result.utilization <= 1


def test_a_service_gets_its_slots_from_a_job_that_continues_training() -> None:
    for result in run_experiments(MIXED, ELASTIC, MAX_MIN):
        training, service = result.runs["training"], result.runs["service"]
        assert (
            service.submitted_at
            <= require(service.started_at)
            < require(service.running_at)
            < require(training.ended_at)
        )

        changes = sorted(
            {time_s for run in result.runs.values() for start, end, _ in run.spans for time_s in (start, end)}
        )
        assert require(training.ended_at) == changes[-1] == result.end_s
        training_devices = result.devices_at(
            ["training"], [time_s for time_s in changes[:-1] if time_s >= training.spans[0][0]]
        )
        assert min(training_devices) >= 1, "it never stops"
        assert max(training_devices) == 2, "it has all while nobody else wants them"
        assert max(result.devices_at(["training", "service"], changes)) <= 2, "nobody has what another has"
