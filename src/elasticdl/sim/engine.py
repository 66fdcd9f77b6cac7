"""The simulation engine: the scheduler's own loop, driven by events instead of a clock."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from elasticdl.scheduler.interface import Policy
from elasticdl.scheduler.loop import SchedulingLoop
from elasticdl.scheduler.plan import AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot
from elasticdl.sim.interface import ChangeCost, JobRecord
from elasticdl.sim.job import SimulatedJob
from elasticdl.sim.traces.trace import TraceJob

NEVER = float("inf")
MAX_IDLE_TICKS = 1000  # a policy that starts no job for this long never will


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """A node is unavailable during this time."""

    node: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class SimulationConfig:
    """The cluster, its failures and the cost of changes."""

    nodes: tuple[NodeInfo, ...]
    cost: ChangeCost = field(default_factory=ChangeCost)
    outages: Iterable[NodeOutage] = ()  # in order of start; may be endless, and is read once per run
    slowness: Mapping[str, float] = field(default_factory=dict)  # of stragglers; 2.0 takes twice as long
    interference: float = 0.0  # slowdown of distributed jobs that share a node
    interval_s: float = 0.0  # 0: the policy's own
    records_spans: bool = True


class SimulationEngine:
    """Simulates one policy on a trace, as the `Cluster` of its loop, until all jobs have ended or none can any more."""

    def __init__(self, policy: Policy, trace: Iterable[TraceJob], config: SimulationConfig) -> None:
        self.config = config
        self.loop = SchedulingLoop(policy, self)
        self.now = 0.0
        self.active_jobs: dict[str, SimulatedJob] = {}
        self.device_usage: list[tuple[float, float]] = [
            (0.0, 0.0)
        ]  # (time, allocated devices), a point for each change
        self.device_s = 0.0
        self.policy_error = ""  # why the policy's last rejected plan was rejected
        self._policy = policy
        self._interval_s = config.interval_s or policy.interval_s
        self._trace = iter(trace)
        self._next_job = next(self._trace, None)
        self._events: list[tuple[float, int, str]] = []  # of jobs: (time, version, name)
        self._versions = 0
        self._contention = 0.0  # integral of the number of jobs over time
        self._capacity = sum(node.devices for node in config.nodes)
        self._outages = iter(config.outages)
        self._next_failure = next(self._outages, None)
        self._repairs: list[tuple[float, str]] = []
        self._away: Counter[str] = Counter()  # unavailable nodes, and their number of outages
        self._kinds = {node.name: node.kind for node in config.nodes}
        self._idle_ticks = 0  # consecutive ticks with no job running or arriving
        self._devices_in_use = 0.0
        self._usage_since = 0.0

    def run(self, progress: Callable[[float, int], None] = lambda now, active_jobs: None) -> Iterator[JobRecord]:
        """Yields the records of jobs as they end, and at last those of jobs that never ran, with the reason."""
        while self._next_job is not None or self.active_jobs:
            due = min(self._next_arrival(), self._next_job_event(), self._next_tick(), self._next_outage())
            if due == NEVER:
                break
            self._contention += (due - self.now) * len(self.active_jobs)
            self.now = due
            ended = list(self._end_jobs())
            has_arrivals = self._admit_arrivals()
            has_outages = self._apply_outages()
            if ended or has_outages:
                self._update_slowness()
            should_decide = self._should_decide(bool(ended) or has_arrivals or has_outages)
            if should_decide:
                self.loop.run_once(self.now)
                self.policy_error = self.loop.policy_error or self.policy_error
            yield from ended
            if should_decide:  # an older plan may be for fewer nodes
                yield from self._drop_rejected()
            progress(self.now, len(self.active_jobs))
        for name in sorted(self.active_jobs):
            yield self._give_up(name, "it could never run, and nothing that could change this will happen")

    def load_running_jobs(self, now: float, jobs: Iterable[tuple[TraceJob, JobInfo]]) -> None:
        """Begins at `now` with jobs that exist already and have workers. Call it before `run`."""
        self.now = self._usage_since = now
        self.device_usage = [(now, 0.0)]
        for trace_job, job in jobs:
            self.active_jobs[trace_job.name] = simulated = SimulatedJob(
                trace_job, self.config.cost, self._contention, self.config.records_spans
            )
            simulated.resume_from(job, self._kind_of(next(iter(job.workers), "")), now)
            self._schedule_event(trace_job.name)
        self._update_usage()

    # ---- Cluster

    def snapshot(self, now: float) -> Snapshot:
        for name, job in self.active_jobs.items():
            if job.advance(now):
                self._schedule_event(name)
        return Snapshot(now, self._nodes(), tuple(job.to_job_info() for job in self.active_jobs.values()))

    def apply(self, plan: AllocationPlan, now: float) -> None:
        changed = []
        for name, job in self.active_jobs.items():
            allocation = plan.allocations[name]
            if dict(allocation.workers) != job.workers or allocation.share != job.share:
                kind = self._kind_of(next(iter(allocation.workers), ""))
                job.allocate(allocation.workers, kind, allocation.share, allocation.batch, now)
                changed.append(name)
        if changed:
            self._update_slowness()
            for name in changed:
                self._schedule_event(name)
            self._update_usage()

    # ---- events

    def _next_arrival(self) -> float:
        return NEVER if self._next_job is None else self._next_job.submitted_at

    def _next_job_event(self) -> float:
        while self._events:
            due_at, version, name = self._events[0]
            if name in self.active_jobs and self.active_jobs[name].version == version:
                return due_at
            heapq.heappop(self._events)
        return NEVER

    def _next_tick(self) -> float:
        """Ticks are whole multiples of the interval, as of a clock, also after a time without jobs."""
        self._idle_ticks = 0 if self._devices_in_use or self._next_job is not None else self._idle_ticks + 1
        if not self._interval_s or not self.active_jobs or self._idle_ticks > MAX_IDLE_TICKS:
            return NEVER
        return (int(self.now / self._interval_s + 1e-9) + 1) * self._interval_s

    def _next_outage(self) -> float:
        if not self.active_jobs or self._idle_ticks > MAX_IDLE_TICKS:
            return NEVER
        loss = self._next_failure.start_s if self._next_failure else NEVER
        return max(min(loss, self._repairs[0][0] if self._repairs else NEVER), self.now)

    def _should_decide(self, has_news: bool) -> bool:
        if not self.active_jobs:
            return False
        is_tick = (
            bool(self._interval_s) and abs(self.now / self._interval_s - round(self.now / self._interval_s)) < 1e-9
        )
        return is_tick or (has_news and self._policy.decides_on_events)

    def _admit_arrivals(self) -> bool:
        has_arrivals = False
        while self._next_job is not None and self._next_job.submitted_at <= self.now:
            trace_job = self._next_job
            self.active_jobs[trace_job.name] = SimulatedJob(
                trace_job, self.config.cost, self._contention, self.config.records_spans
            )
            self._next_job = next(self._trace, None)
            has_arrivals = True
        return has_arrivals

    def _end_jobs(self) -> Iterator[JobRecord]:
        """Handles all events of jobs up to now."""
        while self._next_job_event() <= self.now:
            due_at, _, name = heapq.heappop(self._events)
            job = self.active_jobs[name]
            job.advance(due_at)
            if job.workload.is_done:
                yield self._finish_job(name, due_at)
            else:
                self._schedule_event(name)

    def _finish_job(self, name: str, finished_at: float) -> JobRecord:
        job = self.active_jobs.pop(name)
        job.finish(finished_at)
        record = job.record
        jct_s = max(finished_at - record.submitted_at, 1e-9)
        mean_jobs = max((self._contention - job.contention) / jct_s, 1.0)
        isolated_s = (
            job.workload.isolated_duration_s(self._capacity / job.trace_job.devices / mean_jobs)
            + self.config.cost.start_s
        )
        record.fairness = jct_s / isolated_s
        self._update_usage()
        return record

    def _drop_rejected(self) -> Iterator[JobRecord]:
        if self._away:
            return  # it might run on a node that returns
        for name in [
            name
            for name, allocation in self.loop.plan.allocations.items()
            if allocation.is_rejected and name in self.active_jobs
        ]:
            yield self._give_up(name, self.loop.plan.allocations[name].reason)

    def _give_up(self, name: str, reason: str) -> JobRecord:
        record = self.active_jobs.pop(name).record
        record.reason = reason
        return record

    def _schedule_event(self, name: str) -> None:
        job = self.active_jobs[name]
        self._versions += 1
        job.version = self._versions
        if (due_at := job.next_event_at()) < NEVER:
            heapq.heappush(self._events, (due_at, job.version, name))

    # ---- nodes

    def _nodes(self) -> tuple[NodeInfo, ...]:
        if not self._away:
            return self.config.nodes
        return tuple(node for node in self.config.nodes if node.name not in self._away)

    def _kind_of(self, name: str) -> str:
        return self._kinds.get(name, "")

    def _apply_outages(self) -> bool:
        """Removes workers on failed nodes; a job that may not run with so few has none."""
        has_changed = False
        while self._next_failure is not None and self._next_failure.start_s <= self.now:
            self._away[self._next_failure.node] += 1
            heapq.heappush(self._repairs, (self._next_failure.end_s, self._next_failure.node))
            self._next_failure = next(self._outages, None)
            has_changed = True
        while self._repairs and self._repairs[0][0] <= self.now:
            self._away -= Counter([heapq.heappop(self._repairs)[1]])
            has_changed = True
        if has_changed and self._away:
            self._remove_lost_workers()
        return has_changed

    def _remove_lost_workers(self) -> None:
        for name, job in self.active_jobs.items():
            if any(node in self._away for node in job.workers):
                job.advance(self.now)
                remaining = {node: count for node, count in job.workers.items() if node not in self._away}
                can_continue = not self._policy.is_rigid and job.to_job_info().allows_size(sum(remaining.values()))
                kind = self._kind_of(next(iter(remaining), ""))
                job.allocate(
                    remaining if can_continue else {}, kind, job.share if can_continue else 1.0, None, self.now
                )
                self._schedule_event(name)
        self._update_usage()

    def _update_slowness(self) -> None:
        """Applies stragglers, and the interference of distributed jobs on a node."""
        if not self.config.slowness and not self.config.interference:
            return
        distributed = [set(job.workers) for job in self.active_jobs.values() if len(job.workers) > 1]
        for name, job in self.active_jobs.items():
            slowness = max((self.config.slowness.get(node, 1.0) for node in job.workers), default=1.0)
            if len(job.workers) > 1 and sum(bool(nodes & set(job.workers)) for nodes in distributed) > 1:
                slowness /= 1.0 - self.config.interference
            if slowness != job.slowness:
                job.advance(self.now)
                job.slowness = slowness
                self._schedule_event(name)

    def _update_usage(self) -> None:
        """Records the devices in use from now on."""
        self.device_s += (self.now - self._usage_since) * self._devices_in_use
        self._usage_since = self.now
        self._devices_in_use = sum(
            sum(job.workers.values()) * job.trace_job.devices * job.share for job in self.active_jobs.values()
        )
        if self.config.records_spans and self._devices_in_use != self.device_usage[-1][1]:
            self.device_usage.append((self.now, self._devices_in_use))
