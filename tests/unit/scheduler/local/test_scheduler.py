"""When the policy is called, and that the local scheduler decides as a plain loop does."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given as tried
from hypothesis import settings
from hypothesis import strategies as st

from elasticdl.scheduler import policies
from elasticdl.scheduler.accounts.events import (
    ActionSucceeded,
    CloseJob,
    JobAction,
    JobEvent,
    JobExited,
    JobSubmitted,
    ResizeJob,
    StartJob,
    SuspendJob,
)
from elasticdl.scheduler.interface import Decision, Policy
from elasticdl.scheduler.local.nodes import LOCAL_NODE
from elasticdl.scheduler.local.scheduler import POLICY_RETRY_S
from elasticdl.scheduler.loop import SchedulingLoop
from elasticdl.scheduler.plan import AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot
from tests.properties import examples
from tests.unit.scheduler.local.jobs import InOrder, allocated_workers, status_reported, submitted, turns


@dataclass(frozen=True)
class Moody(InOrder):
    """Fails while the test says so."""

    moods: list[bool] = field(default_factory=list)

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        if self.moods and self.moods.pop(0):
            raise ZeroDivisionError("no mood")
        return super().decide(snapshot, memory)


def test_a_policy_that_raises_keeps_the_last_plan_and_is_asked_again() -> None:
    scheduler = turns(devices=3, policy=Moody(moods=[False, True, False]))
    scheduler.step([submitted("a", max_workers=2)], 1.0)

    assert scheduler.step([ActionSucceeded("a", 1.1), submitted("b", submitted_at=2.0)], 2.0) == []
    report = scheduler.report(2.0)
    assert report.policy_error == "ZeroDivisionError: no mood"
    assert (report.jobs["a"].worker_count, report.jobs["b"].worker_count) == (2, 0)
    assert "the policy failed" in report.jobs["b"].reason

    assert scheduler.step([], 2.0 + POLICY_RETRY_S - 0.1) == []
    assert scheduler.step([], 2.0 + POLICY_RETRY_S) == [StartJob("b", 1, resumes=False)]
    assert scheduler.report(9.0).policy_error == ""


def test_a_policy_of_rounds_is_asked_on_whole_multiples_of_its_interval() -> None:
    scheduler = turns(policy=InOrder(interval_s=60.0, decides_on_events=False))

    assert scheduler.step([submitted("a")], 61.0) == []
    assert scheduler.step([], 119.0) == []
    assert scheduler.step([], 120.5) == [StartJob("a", 4, resumes=False)]
    assert scheduler.step([submitted("b", priority=1)], 179.0) == []


def test_an_interval_of_the_user_overrides_that_of_the_policy() -> None:
    scheduler = turns(policy=InOrder(interval_s=3600.0, decides_on_events=False), interval_s=0.0)

    assert scheduler.step([submitted("a")], 61.0) == [StartJob("a", 4, resumes=False)]


class Plain:
    """A simple simulated cluster: plans take effect at once."""

    def __init__(self, devices: int) -> None:
        self.nodes = (NodeInfo(LOCAL_NODE, devices),)
        self.jobs: dict[str, JobInfo] = {}
        self.at = 0.0

    def happen(self, events: list[JobEvent], now: float) -> bool:
        """Whether the jobs have changed."""
        self.snapshot(now)
        before = set(self.jobs)
        for event in events:
            if isinstance(event, JobSubmitted):
                self.jobs[event.submission.name] = event.submission.to_job_info(change_cost_s=0.5)
            elif isinstance(event, JobExited):
                self.jobs.pop(event.name, None)  # unless it was rejected
        return set(self.jobs) != before

    def snapshot(self, now: float) -> Snapshot:
        for name, job in self.jobs.items():
            seconds = now - self.at if job.workers else 0.0
            attained_s, executed_s = job.attained_s + job.worker_count * job.devices * seconds, job.executed_s + seconds
            self.jobs[name] = replace(job, attained_s=attained_s, executed_s=executed_s)
        self.at = now
        return Snapshot(now, self.nodes, tuple(self.jobs.values()))

    def apply(self, plan: AllocationPlan, now: float) -> None:
        for name, allocation in plan.allocations.items():
            job = self.jobs[name]
            if allocation.is_rejected:
                del self.jobs[name]
            elif dict(job.workers) != dict(allocation.workers):
                is_first = job.started_at is None
                self.jobs[name] = replace(
                    job,
                    workers=allocation.workers,
                    started_at=now if is_first else job.started_at,
                    changed_at=now,
                    restarts=job.restarts + (not is_first),
                    max_workers_so_far=max(job.max_workers_so_far, allocation.worker_count),
                )


@dataclass(frozen=True)
class LeastServed(InOrder):
    """Least attained service first: a policy that depends on accounts. Counts its calls."""

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        queue = sorted(snapshot.jobs, key=lambda job: (job.attained_s, job.restarts, job.name))
        ranked = tuple(replace(job, submitted_at=float(rank)) for rank, job in enumerate(queue))
        decision = super().decide(Snapshot(snapshot.now, snapshot.nodes, ranked), None)
        return replace(decision, memory=(memory or 0) + 1)


class Machine:
    """Carries out due actions slightly later and in its own order, as real jobs do."""

    def __init__(self) -> None:
        self.stopping: list[str] = []

    def answer(self, actions: list[JobAction], now: float) -> list[JobEvent]:
        events: list[JobEvent] = [JobExited(name, "stopped") for name in self.stopping]
        self.stopping = [action.name for action in actions if isinstance(action, SuspendJob)]
        for action in actions:
            if isinstance(action, CloseJob):
                events.append(JobExited(action.name, action.phase))
            events.append(ActionSucceeded(action.name, now))
            if isinstance(action, StartJob | ResizeJob):
                events.append(status_reported(action.name, now + 0.001, action.workers))
        return events


SECONDS = st.integers(1, 600).map(float)  # whole ones: the milliseconds of carrying out never reach the next tick
COMING = st.lists(
    st.tuples(SECONDS, st.integers(1, 4), st.integers(0, 3), st.integers(0, 2), SECONDS),
    min_size=1,
    max_size=7,
)
Coming = list[tuple[float, int, int, int, float]]


@tried(COMING, st.integers(2, 6), st.sampled_from([InOrder(), LeastServed(), LeastServed(interval_s=60.0)]))
def test_the_scheduler_of_this_machine_decides_as_a_simulated_loop_on_the_same_events(
    coming: Coming, devices: int, policy: InOrder
) -> None:
    decide_alike(coming, devices, policy)


@pytest.mark.parametrize("name", sorted(policies.POLICY_REGISTRY))
@tried(coming=COMING, devices=st.integers(2, 6))
@settings(max_examples=examples(8))
def test_every_policy_decides_on_this_machine_as_in_a_simulated_loop(name: str, coming: Coming, devices: int) -> None:
    decide_alike(coming, devices, policies.load_policy(name))


def decide_alike(coming: Coming, devices: int, policy: Policy) -> None:
    """The same events at the same times give the same plans."""
    plain = Plain(devices)
    loop = SchedulingLoop(policy, plain)
    scheduler, machine = turns(devices, policy), Machine()
    for now, events in _history(coming, policy.interval_s):
        is_tick = bool(policy.interval_s) and now % policy.interval_s == 0
        has_news = plain.happen(events, now)
        simulated = loop.run_once(now) if plain.jobs and (is_tick or (has_news and policy.decides_on_events)) else None
        actions = scheduler.step(events, now)
        decided = scheduler.loop.plan
        for moment in range(1, 8):  # due actions are carried out; none of them calls the policy again
            actions = scheduler.step(machine.answer(actions, now + moment * 0.001), now + moment * 0.001)
        if simulated is not None:
            assert decided == simulated
        assert (scheduler.loop.decisions, scheduler.loop.policy_error) == (loop.decisions, loop.policy_error)


def _history(coming: Coming, interval_s: float) -> list[tuple[float, list[JobEvent]]]:
    """Jobs come and end; nothing but time passes at a tick."""
    happens: defaultdict[float, list[JobEvent]] = defaultdict(list)
    now = 0.0
    for index, (pause_s, min_workers, more, priority, lasts_s) in enumerate(coming):
        now += pause_s
        name = f"job-{index}"
        happens[now].append(submitted(name, min_workers, min_workers + more, submitted_at=now, priority=priority))
        happens[now + lasts_s].append(JobExited(name, "succeeded"))
    ticks = int(max(happens) / interval_s) if interval_s else 0
    return sorted(({tick * interval_s: [] for tick in range(1, ticks + 1)} | happens).items())


def test_devices_of_ended_jobs_go_to_waiting_ones() -> None:
    scheduler, machine = turns(devices=2), Machine()
    actions = scheduler.step([submitted("a", 2, 2), submitted("b", 2, 2, submitted_at=1.0)], 1.0)
    scheduler.step(machine.answer(actions, 1.1), 1.2)

    scheduler.step([JobExited("a", "succeeded")], 2.0)

    assert allocated_workers(scheduler) == {"b": 2}
