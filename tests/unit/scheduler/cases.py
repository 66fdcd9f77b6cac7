"""Small clusters and jobs for tests, and a table of rates that can be checked by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from elasticdl.scheduler.interface import BatchConfig, Decision, Floats, Policy
from elasticdl.scheduler.invariants import find_violations
from elasticdl.scheduler.plan import AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot, WorkersByNode


@dataclass(frozen=True)
class Concave:
    """Work a second: workers to a power below 1, less on several nodes, faster on some kinds."""

    power: float = 0.8
    apart: float = 0.9  # the remaining rate on several nodes
    kinds: tuple[tuple[str, float], ...] = ()

    def work_per_s(self, workers: ArrayLike, nodes: ArrayLike, kind: str = "") -> Floats:
        count, many = np.broadcast_arrays(np.asarray(workers, float), np.asarray(nodes, float))
        speed = dict(self.kinds).get(kind, 1.0)
        alone = np.where(count > 0, np.maximum(count, 1.0) ** self.power, 0.0)
        rates: Floats = speed * alone * np.where(many > 1, self.apart, 1.0)
        return rates

    def batch(self, workers: int, nodes: int, kind: str = "") -> BatchConfig | None:
        return None


def nodes(*devices: int, kind: str = "", rack: str = "") -> tuple[NodeInfo, ...]:
    """n0, n1, … with this many devices each."""
    return tuple(NodeInfo(f"n{index}", count, kind, rack) for index, count in enumerate(devices))


def job(name: str, min_workers: int = 1, max_workers: int = 0, submitted_at: float = 0.0, **more: Any) -> JobInfo:
    return JobInfo(name, submitted_at, min_workers, max_workers or min_workers, **more)


def running(
    name: str,
    workers: WorkersByNode,
    min_workers: int = 1,
    max_workers: int = 0,
    submitted_at: float = 0.0,
    **more: Any,
) -> JobInfo:
    count = sum(workers.values())
    return job(
        name,
        min_workers,
        max_workers or max(min_workers, count),
        submitted_at,
        workers=workers,
        started_at=submitted_at,
        **more,
    )


def counts(decision: Decision | AllocationPlan) -> dict[str, int]:
    return {name: sum(workers.values()) for name, workers in workers_of(decision).items()}


def applied(snapshot: Snapshot, plan: AllocationPlan, later_s: float = 0.0) -> Snapshot:
    """The same jobs after the plan was carried out, and this many seconds later."""
    now = snapshot.now + later_s
    jobs = tuple(_after(job_info, plan, snapshot.now, later_s) for job_info in snapshot.jobs)
    return Snapshot(now, snapshot.nodes, jobs)


def _after(job_info: JobInfo, plan: AllocationPlan, now: float, later_s: float) -> JobInfo:
    allocation = plan.allocations[job_info.name]
    is_changed = dict(allocation.workers) != dict(job_info.workers)
    return replace(
        job_info,
        workers=allocation.workers,
        share=allocation.share if allocation.workers else 1.0,
        started_at=now if job_info.started_at is None and allocation.workers else job_info.started_at,
        attained_s=job_info.attained_s + later_s * allocation.worker_count * job_info.devices,
        executed_s=job_info.executed_s + later_s * bool(allocation.workers),
        changed_at=now if is_changed else job_info.changed_at,
        restarts=job_info.restarts + (is_changed and job_info.started_at is not None),
        max_workers_so_far=max(job_info.max_workers_so_far, allocation.worker_count),
    )


def decide(
    policy: Policy, cluster: tuple[NodeInfo, ...], *jobs: JobInfo, memory: Any = None, now: float = 100.0
) -> Decision:
    """Returns the decision of the policy, which must break no rule."""
    snapshot = Snapshot(now, cluster, jobs)
    decision = policy.decide(snapshot, memory)
    assert find_violations(policy, snapshot, decision.plan) == []
    return decision


def workers_of(decision: Decision | AllocationPlan) -> Mapping[str, WorkersByNode]:
    plan = decision.plan if isinstance(decision, Decision) else decision
    return {name: dict(allocation.workers) for name, allocation in plan.allocations.items()}
