"""PickyMan (IPCCC'22): gangs in order of submission; when jobs must stop, those that lose the least by it stop.

Stopping a job costs the seconds of its next change (finish a step, save, load again) plus what it did since its last
checkpoint, times its devices. When higher priorities take devices, the jobs with the greatest cost stay where they are
as far as they fit; the others move to free nodes, or wait ahead of new jobs.

Our reading of the abstract:
- Jobs of equal priority never stop each other: PickyMan chooses the victims, it does not say who may preempt whom.
- The higher priority alone decides which devices it takes, so the choice is among the jobs on them.
- The cost is measured (`change_cost_s` of a job) instead of predicted from traffic.
- `checkpoint_s` is how often jobs save by themselves. With 0 they save when they stop, as ElasticDL's jobs do, and lose
  nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

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

    def decide(self, snapshot: Snapshot, memory: object) -> Decision:
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
        """Returns the device-seconds that stopping the job now costs."""
        lost_s = 0.0
        if self.checkpoint_s > 0 and job.changed_at is not None:
            lost_s = max(now - job.changed_at, 0.0) % self.checkpoint_s
        return (job.change_cost_s + lost_s) * job.worker_count * job.devices


def _allocation(job: JobInfo, workers: WorkersByNode, stop_cost: float, free_devices: int) -> Allocation:
    if job.workers and not workers:
        reason = f"stopped, which costs {stop_cost:.0f} device-seconds, less than for the jobs that stay on its nodes"
        return Allocation({}, f"{reason}; waits for {job.rigid_size} workers, {free_devices} devices are free")
    if not workers:
        return Allocation(
            {}, f"waits until {job.rigid_size} workers fit at the same time; {free_devices} devices are free"
        )
    if job.workers and dict(workers) != dict(job.workers):
        return Allocation(workers, f"moved, which costs {stop_cost:.0f} device-seconds: other jobs need its nodes")
    return Allocation(workers, f"all of the {job.rigid_size} workers it requested")


POLICY = PickyMan
