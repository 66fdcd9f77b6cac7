"""Gangs in order of submission, as Kubeflow with Volcano, coscheduling or Kueue schedules them.

A job starts when all workers that it requests fit, and keeps them until it ends. Best effort: a job that does not fit
is skipped, and the next one is tried (Kueue's BestEffortFIFO). Strict: no job starts before the first of the queue
(StrictFIFO; YARN's capacity scheduler in Tiresias's paper), and lower priorities get nothing either.

Deviations: only placement, which is ours (the fewest nodes). A job that lost a node returns to the queue.
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
class FifoGang:
    name: str = "fifo-gang"
    is_strict: bool = False
    is_rigid: bool = True
    interval_s: float = 0.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: object) -> Decision:
        free = FreeResources(snapshot.nodes)
        queue = sort_by_submission(snapshot.jobs)
        assigned: dict[str, WorkersByNode] = {}
        for job in queue:
            has_all_workers = job.workers and job.worker_count == job.rigid_size
            if has_all_workers and free.can_hold(job, job.workers) and meets_constraints(free, job, job.workers):
                assigned[job.name] = job.workers
                free.allocate(job, job.workers)
        head: JobInfo | None = None
        for job in queue:
            if job.name in assigned or (self.is_strict and head):
                continue
            if free.free_devices and (workers := place_workers(free, job, job.rigid_size)):
                assigned[job.name] = workers
                free.allocate(job, workers)
            else:
                head = head or job
        free_devices = free.free_devices
        plan = AllocationPlan(
            {job.name: self._allocation(job, assigned.get(job.name, {}), head, free_devices) for job in queue}
        )
        return Decision(plan, blocks_lower_priorities=self.is_strict and head is not None)

    def _allocation(self, job: JobInfo, workers: WorkersByNode, head: JobInfo | None, free_devices: int) -> Allocation:
        if workers:
            return Allocation(workers, f"all of the {job.rigid_size} workers it requested, until it ends")
        needs = f"{job.rigid_size} workers of {job.devices} device{'s' * (job.devices > 1)}"
        if self.is_strict and head and head is not job:
            return Allocation(
                {}, f"waits behind {head.name}, the first of the queue, which needs {head.rigid_size} workers"
            )
        return Allocation({}, f"waits until {needs} are free at the same time; {free_devices} devices are")


POLICY = FifoGang
