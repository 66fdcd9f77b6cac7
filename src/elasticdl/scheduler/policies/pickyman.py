"""PickyMan (IPCCC'22): whole gangs, first come first served; who must be stopped is who loses the least by it.

What stopping a job costs: the seconds that its next change costs it (finish a step, save, load again), and what it did
since its last checkpoint, times the devices it has. Where greater priorities took devices, the jobs that lose the most
stay where they are, as far as there is room; the others move to free nodes, or wait and stand before newcomers.

Our reading of an abstract. Jobs of equal priority are never stopped for each other: PickyMan chooses among victims,
it does not say who may preempt whom. Which devices are needed is decided by the greater priority alone, so that the
choice is among the jobs that are on them. Time is not predicted from traffic: the cost is what was measured
(`change_cost_s` of a job). `checkpoint_s` is how often jobs save on their own; 0: they save when they are stopped, as
ElasticDL's do, and lose nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.placement.assignment import sort_by_submission
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import meets_constraints, place_workers
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, WorkersByNode


@dataclass(frozen=True)
class PickyMan:
    name: str = "pickyman"
    checkpoint_s: float = 0.0
    is_rigid: bool = True
    interval_s: float = 0.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        free = FreeResources(snapshot.nodes)
        queue = sort_by_submission(snapshot.jobs)
        stop_costs = {job.name: self.stop_cost(job, snapshot.now) for job in queue}
        assigned: dict[str, WorkersByNode] = {}

        def assign(job: JobInfo, workers: WorkersByNode | None) -> None:
            if workers:
                assigned[job.name] = workers
                free.allocate(job, workers)

        by_stop_cost = sorted(queue, key=lambda job: (not job.workers, -stop_costs[job.name] if job.workers else 0.0))
        for job in by_stop_cost:
            if job.workers and job.worker_count == job.rigid_size and free.can_hold(job, job.workers):
                assign(job, job.workers if meets_constraints(free, job, job.workers) else None)
        for job in by_stop_cost:
            if job.name not in assigned and free.free_devices:
                assign(job, place_workers(free, job, job.rigid_size))
        free_devices = free.free_devices
        answers = {
            job.name: _allocation(job, assigned.get(job.name, {}), stop_costs[job.name], free_devices) for job in queue
        }
        return Decision(AllocationPlan(answers))

    def stop_cost(self, job: JobInfo, now: float) -> float:
        """Device-seconds that stopping it now costs."""
        lost_s = 0.0
        if self.checkpoint_s > 0 and job.changed_at is not None:
            lost_s = max(now - job.changed_at, 0.0) % self.checkpoint_s
        return (job.change_cost_s + lost_s) * job.worker_count * job.devices


def _allocation(job: JobInfo, workers: WorkersByNode, stop_cost: float, free_devices: int) -> Allocation:
    if job.workers and not workers:
        reason = f"stopped, which costs {stop_cost:.0f} device-seconds, less than those who stay on its nodes"
        return Allocation({}, f"{reason}; waits for {job.rigid_size} workers, {free_devices} devices are free")
    if not workers:
        return Allocation({}, f"waits until {job.rigid_size} workers fit together; {free_devices} devices are free")
    if job.workers and dict(workers) != dict(job.workers):
        return Allocation(workers, f"moved, which costs {stop_cost:.0f} device-seconds: its nodes are needed by others")
    return Allocation(workers, f"all of the {job.rigid_size} workers asked for")


POLICY = PickyMan
