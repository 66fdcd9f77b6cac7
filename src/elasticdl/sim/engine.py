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
MAX_IDLE_TICKS = 1000  # a policy that starts nobody for so long never will


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """A node is away from then to then."""

    node: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class SimulationConfig:
    """The cluster, and what befalls it."""

    nodes: tuple[NodeInfo, ...]
    cost: ChangeCost = field(default_factory=ChangeCost)
    outages: Iterable[NodeOutage] = ()  # the first to start first; may be endless, and is read once a run
    slowness: Mapping[str, float] = field(default_factory=dict)  # of stragglers: 2.0 takes twice as long
    interference: float = 0.0  # slowdown of jobs on several nodes that share one with another such job
    interval_s: float = 0.0  # 0: the policy's own
    records_spans: bool = True


class SimulationEngine:
    """Is a Cluster. `run` ends when all jobs have ended or none can any more."""

    def __init__(self, policy: Policy, trace: Iterable[TraceJob], config: SimulationConfig) -> None:
        self.config = config
        self.loop = SchedulingLoop(policy, self)
        self.now = 0.0
        self.active_jobs: dict[str, SimulatedJob] = {}
        self.device_usage: list[tuple[float, float]] = [(0.0, 0.0)]  # devices that are allocated, from when
        self.device_s = 0.0
        self.policy_error = ""  # the last answer of the policy that was refused
        self._policy = policy
        self._interval_s = config.interval_s or policy.interval_s
        self._coming = iter(trace)
        self._next_job = next(self._coming, None)
        self._events: list[tuple[float, int, str]] = []  # of jobs: time, version, name
        self._versions = 0
        self._contention = 0.0  # integral of the number of jobs over time
        self._capacity = sum(node.devices for node in config.nodes)
        self._outages = iter(config.outages)
        self._next_loss = next(self._outages, None)
        self._returns: list[tuple[float, str]] = []
        self._away: Counter[str] = Counter()  # nodes that are gone, by how many outages
        self._kinds = {node.name: node.kind for node in config.nodes}
        self._idle_ticks = 0  # with nothing running and nothing coming
        self._used = 0.0
        self._used_at = 0.0

    def run(self, progress: Callable[[float, int], None] = lambda now, active_jobs: None) -> Iterator[JobRecord]:
        """Records of jobs as they end; those that never ran last, with the reason."""
        while self._next_job is not None or self.active_jobs:
            due = min(self._next_arrival(), self._next_event(), self._next_tick(), self._next_outage())
            if due == NEVER:
                break
            self._contention += (due - self.now) * len(self.active_jobs)
            self.now = due
            ended = list(self._end_jobs())
            came = self._take_jobs()
            failed = self._take_outages()
            if ended or failed:
                self._slow_down()
            asked = self._is_asked(bool(ended) or came or failed)
            if asked:
                self.loop.run_once(self.now)
                self.policy_error = self.loop.policy_error or self.policy_error
            yield from ended
            if asked:  # an older plan may be one for fewer nodes
                yield from self._rejected()
            progress(self.now, len(self.active_jobs))
        for name in sorted(self.active_jobs):
            yield self._give_up(name, "it never could run: nothing that was waited for comes any more")

    def load_running_jobs(self, now: float, found: Iterable[tuple[TraceJob, JobInfo]]) -> None:
        """Begin at `now` with jobs that are there already and have what they have. Before `run`."""
        self.now = self._used_at = now
        self.device_usage = [(now, 0.0)]
        for told, job in found:
            self.active_jobs[told.name] = taken = SimulatedJob(
                told, self.config.cost, self._contention, self.config.records_spans
            )
            taken.resume_from(job, self._kind_of(next(iter(job.workers), "")), now)
            self._expect(told.name)
        self._count()

    # Cluster

    def snapshot(self, now: float) -> Snapshot:
        for name, job in self.active_jobs.items():
            if job.advance(now):
                self._expect(name)
        return Snapshot(now, self._nodes(), tuple(job.to_job_info() for job in self.active_jobs.values()))

    def apply(self, plan: AllocationPlan, now: float) -> None:
        changed = []
        for name, job in self.active_jobs.items():
            given = plan.allocations[name]
            if dict(given.workers) != job.workers or given.share != job.share:
                kind = self._kind_of(next(iter(given.workers), ""))
                job.allocate(given.workers, kind, given.share, given.batch, now)
                changed.append(name)
        if changed:
            self._slow_down()
            for name in changed:
                self._expect(name)
            self._count()

    # Events

    def _next_arrival(self) -> float:
        return NEVER if self._next_job is None else self._next_job.submitted_at

    def _next_event(self) -> float:
        while self._events:
            at, version, name = self._events[0]
            if name in self.active_jobs and self.active_jobs[name].version == version:
                return at
            heapq.heappop(self._events)
        return NEVER

    def _next_tick(self) -> float:
        """On whole multiples of the interval, as clocks tick, also after a time without jobs."""
        self._idle_ticks = 0 if self._used or self._next_job is not None else self._idle_ticks + 1
        if not self._interval_s or not self.active_jobs or self._idle_ticks > MAX_IDLE_TICKS:
            return NEVER
        return (int(self.now / self._interval_s + 1e-9) + 1) * self._interval_s

    def _next_outage(self) -> float:
        if not self.active_jobs or self._idle_ticks > MAX_IDLE_TICKS:
            return NEVER
        loss = self._next_loss.start_s if self._next_loss else NEVER
        return max(min(loss, self._returns[0][0] if self._returns else NEVER), self.now)

    def _is_asked(self, happened: bool) -> bool:
        if not self.active_jobs:
            return False
        on_tick = (
            bool(self._interval_s) and abs(self.now / self._interval_s - round(self.now / self._interval_s)) < 1e-9
        )
        return on_tick or (happened and self._policy.decides_on_events)

    def _take_jobs(self) -> bool:
        came = False
        while self._next_job is not None and self._next_job.submitted_at <= self.now:
            told = self._next_job
            self.active_jobs[told.name] = SimulatedJob(
                told, self.config.cost, self._contention, self.config.records_spans
            )
            self._next_job = next(self._coming, None)
            came = True
        return came

    def _end_jobs(self) -> Iterator[JobRecord]:
        """All events of jobs up to now."""
        while self._next_event() <= self.now:
            at, _, name = heapq.heappop(self._events)
            job = self.active_jobs[name]
            job.advance(at)
            if job.workload.is_done:
                yield self._ended(name, at)
            else:
                self._expect(name)

    def _ended(self, name: str, at: float) -> JobRecord:
        job = self.active_jobs.pop(name)
        job.finish(at)
        record = job.record
        jct = max(at - record.submitted_at, 1e-9)
        jobs = max((self._contention - job.contention) / jct, 1.0)
        alone = job.workload.isolated_duration_s(self._capacity / job.told.devices / jobs) + self.config.cost.start_s
        record.fairness = jct / alone
        self._count()
        return record

    def _rejected(self) -> Iterator[JobRecord]:
        if self._away:
            return  # it might run on a node that comes back
        for name in [
            n for n, given in self.loop.plan.allocations.items() if given.is_rejected and n in self.active_jobs
        ]:
            yield self._give_up(name, self.loop.plan.allocations[name].reason)

    def _give_up(self, name: str, why: str) -> JobRecord:
        record = self.active_jobs.pop(name).record
        record.reason = why
        return record

    def _expect(self, name: str) -> None:
        job = self.active_jobs[name]
        self._versions += 1
        job.version = self._versions
        if (at := job.next_event_at()) < NEVER:
            heapq.heappush(self._events, (at, job.version, name))

    # Nodes

    def _nodes(self) -> tuple[NodeInfo, ...]:
        if not self._away:
            return self.config.nodes
        return tuple(node for node in self.config.nodes if node.name not in self._away)

    def _kind_of(self, name: str) -> str:
        return self._kinds.get(name, "")

    def _take_outages(self) -> bool:
        """Workers on nodes that are gone are gone too; a job that may not have so few has none."""
        happened = False
        while self._next_loss is not None and self._next_loss.start_s <= self.now:
            self._away[self._next_loss.node] += 1
            heapq.heappush(self._returns, (self._next_loss.end_s, self._next_loss.node))
            self._next_loss = next(self._outages, None)
            happened = True
        while self._returns and self._returns[0][0] <= self.now:
            self._away -= Counter([heapq.heappop(self._returns)[1]])
            happened = True
        if happened and self._away:
            self._take_from_lost()
        return happened

    def _take_from_lost(self) -> None:
        for name, job in self.active_jobs.items():
            if any(node in self._away for node in job.workers):
                job.advance(self.now)
                left = {node: count for node, count in job.workers.items() if node not in self._away}
                enough = not self._policy.is_rigid and job.to_job_info().allows_size(sum(left.values()))
                kind = self._kind_of(next(iter(left), ""))
                job.allocate(left if enough else {}, kind, job.share if enough else 1.0, None, self.now)
                self._expect(name)
        self._count()

    def _slow_down(self) -> None:
        """Stragglers, and jobs that disturb each other on a node."""
        if not self.config.slowness and not self.config.interference:
            return
        wide = [set(job.workers) for job in self.active_jobs.values() if len(job.workers) > 1]
        for name, job in self.active_jobs.items():
            slowness = max((self.config.slowness.get(node, 1.0) for node in job.workers), default=1.0)
            if len(job.workers) > 1 and sum(bool(nodes & set(job.workers)) for nodes in wide) > 1:
                slowness /= 1.0 - self.config.interference
            if slowness != job.slowness:
                job.advance(self.now)
                job.slowness = slowness
                self._expect(name)

    def _count(self) -> None:
        """Devices in use from now on."""
        self.device_s += (self.now - self._used_at) * self._used
        self._used_at = self.now
        self._used = sum(sum(job.workers.values()) * job.told.devices * job.share for job in self.active_jobs.values())
        if self.config.records_spans and self._used != self.device_usage[-1][1]:
            self.device_usage.append((self.now, self._used))
