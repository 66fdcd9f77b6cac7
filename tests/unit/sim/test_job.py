"""A simulated job by hand: what starting, changing and joining cost it."""

from __future__ import annotations

import pytest

from elasticdl.scheduler.snapshot import WorkersByNode
from elasticdl.sim.interface import AllocationSpan, ChangeCost
from elasticdl.sim.job import SimulatedJob
from elasticdl.sim.traces.trace import TraceJob
from tests.unit.sim.workloads import Work

COST = ChangeCost(10.0, 5.0, 0.0)


def sim_job(work: float = 100.0, cost: ChangeCost = COST, submitted_at: float = 0.0, devices: int = 1) -> SimulatedJob:
    return SimulatedJob(TraceJob("a", submitted_at, Work(work), 1, 1, 8, devices=devices), cost, 0.0)


def give(job: SimulatedJob, workers: WorkersByNode, now: float) -> None:
    job.advance(now)
    job.allocate(workers, "", 1.0, None, now)


def work_done(job: SimulatedJob) -> float:
    return job.workload.report().work_done


def test_a_job_without_workers_waits_and_expects_nothing() -> None:
    job = sim_job(submitted_at=3.0)
    job.advance(10.0)

    assert job.next_event_at() == float("inf")
    assert job.record.waited_s == 7.0
    assert work_done(job) == 0.0


def test_starting_costs_before_the_first_step() -> None:
    job = sim_job()
    give(job, {"n0": 2}, 1.0)

    assert job.next_event_at() == 1.0 + 10.0 + 100.0 / 2
    job.advance(11.0)
    assert work_done(job) == 0.0
    job.advance(21.0)
    assert work_done(job) == 20.0
    assert job.next_event_at() == 61.0


def test_a_change_costs_time_and_keeps_completed_work() -> None:
    job = sim_job()
    give(job, {"n0": 2}, 0.0)
    give(job, {"n0": 4}, 30.0)  # 40 are done

    assert work_done(job) == 40.0
    assert job.next_event_at() == 30.0 + 5.0 + 60.0 / 4
    job.advance(50.0)
    assert job.workload.is_done


def test_fewer_workers_cost_as_much_as_more() -> None:
    job = sim_job()
    give(job, {"n0": 4}, 0.0)
    give(job, {"n0": 1}, 20.0)  # 40 are done

    assert job.next_event_at() == 20.0 + 5.0 + 60.0


def test_a_second_change_during_the_first_restarts_its_cost() -> None:
    job = sim_job()
    give(job, {"n0": 2}, 0.0)
    give(job, {"n0": 4}, 6.0)  # it had not begun

    assert work_done(job) == 0.0
    assert job.next_event_at() == 6.0 + 5.0 + 25.0


def test_a_stopped_job_starts_again_at_the_cost_of_a_start() -> None:
    job = sim_job()
    give(job, {"n0": 2}, 0.0)
    give(job, {}, 20.0)
    give(job, {"n1": 2}, 50.0)

    assert work_done(job) == 20.0
    assert job.next_event_at() == 50.0 + 10.0 + 40.0
    assert (job.record.waited_s, job.record.restarts, job.record.started_at) == (30.0, 1, 0.0)


def test_existing_workers_continue_while_new_ones_join() -> None:
    """Two of four workers exist already: they work for the 20 s that the others need."""
    job = sim_job(cost=ChangeCost(10.0, 1.0, 20.0))
    give(job, {"n0": 2}, 0.0)
    give(job, {"n0": 4}, 10.0)

    assert job.next_event_at() == 30.0
    assert job.advance(30.0)  # another rate from now on
    assert work_done(job) == 40.0
    assert job.next_event_at() == 30.0 + 1.0 + 60.0 / 4


def test_a_job_that_moves_completely_waits_for_its_new_workers() -> None:
    job = sim_job(cost=ChangeCost(10.0, 1.0, 20.0))
    give(job, {"n0": 2}, 0.0)
    give(job, {"n1": 2}, 10.0)

    assert job.next_event_at() == 10.0 + 20.0 + 100.0 / 2


def test_leaving_workers_do_not_delay_the_others() -> None:
    job = sim_job(cost=ChangeCost(10.0, 1.0, 20.0))
    give(job, {"n0": 4}, 0.0)
    give(job, {"n0": 2}, 15.0)  # 20 are done

    assert job.next_event_at() == 15.0 + 1.0 + 80.0 / 2


def test_a_job_can_end_while_new_workers_join() -> None:
    job = sim_job(work=30.0, cost=ChangeCost(0.0, 1.0, 20.0))
    give(job, {"n0": 2}, 0.0)
    give(job, {"n0": 4}, 10.0)  # 10 are left: 5 s with two

    assert job.next_event_at() == 15.0


def test_a_change_while_the_job_starts_does_not_skip_its_start() -> None:
    """The job has not started yet, so no worker can continue while others join."""
    job = sim_job(cost=ChangeCost(30.0, 1.0, 5.0))
    give(job, {"n0": 2}, 0.0)
    give(job, {"n0": 4}, 10.0)

    job.advance(15.0)
    assert work_done(job) == 0.0


@pytest.mark.parametrize(("share", "slowness", "ends"), [(0.5, 1.0, 200.0), (1.0, 2.0, 200.0), (0.5, 2.0, 400.0)])
def test_a_share_of_a_device_and_a_slow_node_take_longer(share: float, slowness: float, ends: float) -> None:
    job = sim_job(cost=ChangeCost.uniform(0.0))
    job.slowness = slowness
    job.allocate({"n0": 1}, "", share, None, 0.0)

    assert job.next_event_at() == ends


def test_the_job_info_has_the_history_of_the_job() -> None:
    job = sim_job(devices=2)
    give(job, {"n0": 2}, 5.0)
    give(job, {"n0": 1, "n1": 2}, 25.0)
    job.advance(45.0)
    seen = job.to_job_info()

    assert (seen.workers, seen.worker_count, seen.devices) == ({"n0": 1, "n1": 2}, 3, 2)
    assert (seen.started_at, seen.changed_at, seen.restarts, seen.max_workers_so_far) == (5.0, 25.0, 1, 3)
    assert seen.executed_s == 40.0
    assert seen.attained_s == 20.0 * 4 + 20.0 * 6
    assert seen.change_cost_s == 5.0
    assert (seen.work_done, seen.work_left) == (20.0 + 45.0, 35.0)
    assert sim_job().to_job_info().change_cost_s == 10.0  # not started yet


def test_spans_record_workers_over_time() -> None:
    job = sim_job()
    give(job, {"n0": 2}, 5.0)
    give(job, {}, 10.0)
    give(job, {"n0": 1, "n1": 1}, 20.0)
    job.finish(30.0)

    assert job.record.spans == [AllocationSpan("a", 5.0, 10.0, 2, 1), AllocationSpan("a", 20.0, 30.0, 2, 2)]
    assert job.record.jct_s == 30.0
