"""The simulator and the plain loop decide the same: equal events, equal states of jobs, equal plans.

A second, simple cluster keeps its own books: plans take effect at once. It is
told of the jobs that come and end and of lost and returned nodes, and decides when the engine does; they share nothing
else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from elasticdl.scheduler.interface import Decision, Policy
from elasticdl.scheduler.loop import SchedulingLoop
from elasticdl.scheduler.plan import AllocationPlan
from elasticdl.scheduler.policies import POLICY_REGISTRY, load_policy
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot
from elasticdl.sim.engine import NodeOutage, SimulationConfig, SimulationEngine
from elasticdl.sim.traces.trace import TraceJob
from tests.unit.scheduler.cases import Concave
from tests.unit.scheduler.policies.rules import QUICK
from tests.unit.sim.workloads import FREE, Work, nodes

NODES = nodes(4, 2)
OUTAGE = NodeOutage("n1", 100.0, 200.0)


@dataclass
class Heard:
    """A policy that records its snapshots and their times."""

    policy: Policy
    times: list[float] = field(default_factory=list)
    plans: list[AllocationPlan] = field(default_factory=list)
    seen: list[Snapshot] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        decision = self.policy.decide(snapshot, memory)
        self.times.append(snapshot.now)
        self.plans.append(decision.plan)
        self.seen.append(snapshot)
        return decision


@dataclass
class Books:
    """Is a Cluster: jobs that do a unit of work a second with each worker, and changes that cost nothing."""

    jobs: dict[str, JobInfo] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    clock_s: float = 0.0

    @property
    def nodes(self) -> tuple[NodeInfo, ...]:
        return tuple(node for node in NODES if node.name not in self.away)

    def pass_until(self, now: float) -> None:
        seconds, self.clock_s = now - self.clock_s, now
        for name, job in self.jobs.items():
            if job.workers:
                work = job.worker_count * seconds
                self.jobs[name] = replace(
                    job,
                    attained_s=job.attained_s + work,
                    executed_s=job.executed_s + seconds,
                    work_done=job.work_done + work,
                    work_left=(job.work_left or 0.0) - work,
                )

    def lose(self, node: str, is_rigid: bool) -> None:
        self.away.add(node)
        for name, job in self.jobs.items():
            if node in job.workers:
                left = {job_info: count for job_info, count in job.workers.items() if job_info != node}
                stays = not is_rigid and job.allows_size(sum(left.values()))
                self._change(name, left if stays else {}, self.clock_s)

    def snapshot(self, now: float) -> Snapshot:
        return Snapshot(now, self.nodes, tuple(self.jobs.values()))

    def apply(self, plan: AllocationPlan, now: float) -> None:
        for name, allocation in plan.allocations.items():
            assert allocation.share == 1.0
            if dict(allocation.workers) != dict(self.jobs[name].workers):
                self._change(name, dict(allocation.workers), now)

    def _change(self, name: str, workers: dict[str, int], now: float) -> None:
        job = self.jobs[name]
        self.jobs[name] = replace(
            job,
            workers=workers,
            started_at=now if job.started_at is None else job.started_at,
            changed_at=now,
            restarts=job.restarts + (bool(workers) and job.started_at is not None),
            max_workers_so_far=max(job.max_workers_so_far, sum(workers.values())),
        )


def trace_of(seed: int) -> list[TraceJob]:
    random, submitted_at, trace = Random(seed), 0.0, []
    for index in range(6):
        submitted_at += random.choice((0.0, 16.0, 64.0, 128.0))
        min_workers = random.choice((1, 1, 2))
        max_workers = min_workers + random.choice((0, 1, 3))
        work = float(random.choice((64, 256, 1024)))
        trace.append(
            TraceJob(
                f"j{index}",
                submitted_at,
                Work(work),
                max_workers,
                min_workers,
                max_workers,
                priority=random.choice((0, 0, 1)),
            )
        )
    return trace


def as_told(trace_job: TraceJob) -> JobInfo:
    body = trace_job.workload
    assert isinstance(body, Work)
    return JobInfo(
        trace_job.name,
        trace_job.submitted_at,
        trace_job.min_workers,
        trace_job.max_workers,
        trace_job.requested,
        priority=trace_job.priority,
        rates=Concave(1.0, 1.0),
        work_left=body.total,
    )


def replay(policy: Policy, trace: list[TraceJob], ends: dict[str, float], is_asked: list[float]) -> None:
    """Applies the same events to the books, and runs the loop whenever the engine did."""
    books = Books()
    loop = SchedulingLoop(policy, books)
    moments = {
        *is_asked,
        *ends.values(),
        *(trace_job.submitted_at for trace_job in trace),
        OUTAGE.start_s,
        OUTAGE.end_s,
    }
    for now in sorted(moments):
        books.pass_until(now)
        for name in [name for name, ended_at in ends.items() if ended_at == now]:
            assert books.jobs.pop(name).work_left == pytest.approx(0.0, abs=1e-6)
        books.jobs |= {trace_job.name: as_told(trace_job) for trace_job in trace if trace_job.submitted_at == now}
        if now == OUTAGE.start_s:
            books.lose(OUTAGE.node, policy.is_rigid)
        books.away -= {OUTAGE.node} if now == OUTAGE.end_s else set()
        if now in is_asked:
            loop.run_once(now)
            assert loop.policy_error == ""


@pytest.mark.parametrize("name", sorted(POLICY_REGISTRY))
@pytest.mark.parametrize("seed", range(4))
def test_the_same_events_give_the_same_plans(name: str, seed: int) -> None:
    simulated, plain = Heard(load_policy(QUICK.get(name, name))), Heard(load_policy(QUICK.get(name, name)))
    engine = SimulationEngine(simulated, trace_of(seed), SimulationConfig(NODES, FREE, (OUTAGE,)))
    records = list(engine.run())
    ends = {record.name: record.finished_at for record in records if record.finished_at is not None}
    assert len(ends) == 6 and engine.loop.rejected_plans == 0

    replay(plain, trace_of(seed), ends, simulated.times)

    assert plain.times == simulated.times
    for simulated_snapshot, plain_snapshot in zip(simulated.seen, plain.seen, strict=True):
        assert {node.name for node in simulated_snapshot.nodes} == {node.name for node in plain_snapshot.nodes}
        assert {job.name: job.workers for job in simulated_snapshot.jobs} == {
            job.name: job.workers for job in plain_snapshot.jobs
        }
    for now, simulated_plan, plain_plan in zip(simulated.times, simulated.plans, plain.plans, strict=True):
        assert (now, simulated_plan.allocations) == (now, plain_plan.allocations)
