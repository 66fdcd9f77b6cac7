"""ElasticDL's own policy: the most goodput for all jobs together, short jobs first while many wait.

Published schedulers avoid changes, because one costs their jobs 15 to 250 s. Ours costs well under a second, so this
policy plans again whenever a job comes or ends. It does not search at random: a knapsack chooses the sizes, exactly up
to 512 devices.

- The value of a size is its speedup over one worker to the power 0.7, so that a device goes where it does the most and
  no job starves for another's last bit of speed. Speedup is goodput if the job's model knows it (as in Pollux, with the
  best batch), else speed, else it is assumed to be linear.
- Short jobs first: a job's value is divided by (its remaining seconds with one worker + 1000)^0.4, by the epochs it
  declares or, without them, by what it has done. With few jobs the exponent shrinks, so that the last long jobs end
  together instead of one by one.
- Every job soon: running one more job is worth more than all sizes of another. If there are more jobs than devices,
  waiting jobs gain value with time.
- Changes must pay: a new size counts only for the part of the expected time until the next change that the change
  leaves. A job that changed often is left alone until it has been stable for as long.
- A job is tried with at most twice the workers it was measured with, at first with four.
- Beyond one node a job gets whole nodes. Workers stay where they are unless fewer nodes can hold them; `consolidate`
  moves small jobs away where a distributed one gains more from it than they lose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elasticdl.scheduler.interface import Decision, Floats
from elasticdl.scheduler.placement.assignment import can_all_stay, sort_by_submission
from elasticdl.scheduler.placement.consolidation import consolidate
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import meets_constraints, place_workers, resize_in_place
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.policies.goodput import knapsack
from elasticdl.scheduler.policies.goodput.sizes import SizeOptions, list_size_options
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, WorkersByNode

MAX_EXACT_DEVICES = 512


@dataclass(frozen=True, slots=True)
class Memory:
    """The last allocations, and when they were decided."""

    decided_at: float
    allocated: Mapping[str, WorkersByNode]


@dataclass(frozen=True)
class GoodputPolicy:
    name: str = "goodput"
    is_rigid: bool = False
    interval_s: float = 30.0
    decides_on_events: bool = True
    adapts_batch: bool = True
    needs_oracle: bool = False
    speedup_exponent: float = 0.7  # 1 is efficient, 0 is fair
    short_job_exponent: float = 0.4  # 0: no preference for short jobs
    crowded_above: int = 10  # number of jobs at which the preference for short ones is complete
    min_duration_s: float = 1000.0  # all shorter jobs count as this short
    horizon_s: float = 600.0  # no allocation is expected to last longer
    stability: float = 0.4  # share of a job's mean time between changes that the next allocation is expected to last
    patience_s: float = 600.0  # a job that waited so long is worth twice as much

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        jobs = sort_by_submission(snapshot.jobs)
        if not snapshot.nodes:
            return Decision(AllocationPlan({job.name: Allocation({}, "waits: there is no node") for job in jobs}))
        options = list_size_options(snapshot, jobs)
        current = {job.name: job.workers for job in jobs}
        if memory and memory.decided_at == snapshot.now and memory.allocated == current:
            assigned: Mapping[str, WorkersByNode] = current  # called again although nothing happened
        else:
            values = self._option_values(snapshot.now, jobs, options)
            assigned = self._place_jobs(snapshot, jobs, self._choose_counts(snapshot, jobs, options, values))
            if can_all_stay(snapshot.nodes, jobs):
                # A plan that is no better changes nothing.
                gain = _total_value(jobs, options, values, assigned) - _total_value(jobs, options, values, current)
                assigned = assigned if gain > 0 else current
            assigned = consolidate(snapshot.nodes, jobs, assigned, self.horizon_s)
        pairs = zip(jobs, options, strict=True)
        plan = AllocationPlan(
            {job.name: _allocation(job, assigned[job.name], snapshot, job_options) for job, job_options in pairs}
        )
        return Decision(plan, Memory(snapshot.now, dict(assigned)))

    def _option_values(
        self, now: float, jobs: Sequence[JobInfo], options: Sequence[list[SizeOptions]]
    ) -> list[list[Floats]]:
        """Returns the value of each size of each option. Running one more job outweighs any size of another."""
        weights = self._job_weights(now, jobs, options)
        values = [
            [weight * self._size_values(now, job, size_options) for size_options in job_options]
            for job, job_options, weight in zip(jobs, options, weights, strict=True)
        ]
        run_value = 1.0 + 2.0 * max(
            (float(size_values.max(initial=0.0)) for job_values in values for size_values in job_values),
            default=0.0,
        )
        # Running jobs get a little more, so that no job is replaced by an equal one.
        return [
            [run_value * (1.0 if job.is_running else 1.0 - 1e-6) + size_values for size_values in job_values]
            for job, job_values in zip(jobs, values, strict=True)
        ]

    def _choose_counts(
        self,
        snapshot: Snapshot,
        jobs: Sequence[JobInfo],
        options: Sequence[list[SizeOptions]],
        values: Sequence[list[Floats]],
    ) -> list[tuple[int, str]]:
        """Returns the workers and the kind of device of each job."""
        kinds = sorted({node.kind for node in snapshot.nodes})
        capacity = [sum(node.devices for node in snapshot.nodes if node.kind == kind) for kind in kinds]
        choices = [
            [
                knapsack.KnapsackOptions(size_options.sizes * job.devices, size_values, kinds.index(size_options.kind))
                for size_options, size_values in zip(job_options, job_values, strict=True)
            ]
            for job, job_options, job_values in zip(jobs, options, values, strict=True)
        ]
        if len(kinds) == 1 and capacity[0] <= MAX_EXACT_DEVICES:
            picks = knapsack.solve_exactly([job_options[0] for job_options in choices], capacity[0])
        else:
            picks = knapsack.solve_by_hull(choices, capacity)
        return [
            (int(job_options[kind_index].sizes[size_index]), job_options[kind_index].kind)
            if kind_index >= 0
            else (0, "")
            for job_options, (kind_index, size_index) in zip(options, picks, strict=True)
        ]

    def _job_weights(self, now: float, jobs: Sequence[JobInfo], options: Sequence[list[SizeOptions]]) -> list[float]:
        exponent = self.short_job_exponent * min(1.0, max(len(jobs) - 1, 0) / self.crowded_above)
        weights = []
        for job, job_options in zip(jobs, options, strict=True):
            remaining_s = max(
                (_work_left(job) / size_options.rate_per_worker for size_options in job_options), default=0.0
            )
            weight = job.weight * (remaining_s / self.min_duration_s + 1.0) ** -exponent
            if not job.is_running:
                waiting_since = job.changed_at if job.changed_at is not None else job.submitted_at
                weight *= 1.0 + max(now - waiting_since, 0.0) / self.patience_s
            weights.append(weight)
        return weights

    def _size_values(self, now: float, job: JobInfo, size_options: SizeOptions) -> Floats:
        """Returns the value of each size: about 1 or more for any that is as fast as one worker."""
        remaining_s = _remaining_s(job, size_options) + job.change_cost_s
        expected_s = np.minimum(remaining_s, self._expected_stable_s(now, job))
        is_unchanged = (size_options.sizes == job.worker_count) & size_options.is_current_kind
        kept_share = np.where(
            is_unchanged, 1.0, np.maximum(1.0 - job.change_cost_s / np.maximum(expected_s, 1e-9), 0.01)
        )
        speedups = np.maximum(size_options.rates / size_options.rate_per_worker * kept_share, 1e-6)
        value: Floats = np.maximum((speedups**self.speedup_exponent - 1.0) / self.speedup_exponent + 2.0, 1e-6)
        return value * np.where(is_unchanged, 1.0 + 1e-9, 1.0)

    def _expected_stable_s(self, now: float, job: JobInfo) -> float:
        """Returns how long the job's next allocation is expected to last."""
        if job.started_at is None or job.changed_at is None:
            return self.horizon_s
        mean_s = (now - job.started_at + job.change_cost_s) / (job.restarts + 1)
        return min(self.horizon_s, max(self.stability * mean_s, now - job.changed_at))

    def _place_jobs(
        self, snapshot: Snapshot, jobs: Sequence[JobInfo], counts: Sequence[tuple[int, str]]
    ) -> dict[str, WorkersByNode]:
        free = FreeResources(snapshot.nodes)
        assigned: dict[str, WorkersByNode] = {}
        changed = []
        for job, (count, kind) in zip(jobs, counts, strict=True):
            stays = count == job.worker_count and job.is_running and _is_on_kind(snapshot, job.workers, kind)
            if stays and free.can_hold(job, job.workers) and meets_constraints(free, job, job.workers):
                assigned[job.name] = job.workers
                free.allocate(job, job.workers)
            else:
                changed.append((job, count, kind))
        for job, count, kind in sorted(changed, key=lambda change: -change[1] * change[0].devices):
            assigned[job.name] = _place_on_fewest_nodes(free, job, count, kind)
            free.allocate(job, assigned[job.name])
        for job in jobs:
            if (
                not assigned[job.name]
                and free.free_devices >= job.devices
                and (min_workers := resize_in_place(free, job, job.min_size))
            ):
                assigned[job.name] = min_workers
                free.allocate(job, min_workers)
        return assigned


def _total_value(
    jobs: Sequence[JobInfo],
    options: Sequence[list[SizeOptions]],
    values: Sequence[list[Floats]],
    assigned: Mapping[str, WorkersByNode],
) -> float:
    """Returns the value of a plan; a size between two options counts as the smaller one."""
    total = 0.0
    for job, job_options, job_values in zip(jobs, options, values, strict=True):
        if count := sum(assigned[job.name].values()):
            index = max(int(np.searchsorted(job_options[0].sizes, count, "right")) - 1, 0)
            total += max(float(size_values[min(index, len(size_values) - 1)]) for size_values in job_values)
    return total


def _place_on_fewest_nodes(free: FreeResources, job: JobInfo, count: int, kind: str) -> WorkersByNode:
    """Places a job on the fewest nodes, its current ones if they are as few; with fewer workers if not all fit."""
    for size in reversed(job.sizes_up_to(min(count, free.total_workers_that_fit(job)))):
        placements = [
            workers
            for workers in (resize_in_place(free, job, size), place_workers(free, job, size))
            if workers is not None
        ]
        if placements:
            return min(placements, key=len)
    return {}


def _is_on_kind(snapshot: Snapshot, workers: WorkersByNode, kind: str) -> bool:
    return all(name in snapshot.nodes_by_name and snapshot.nodes_by_name[name].kind == kind for name in workers)


def _work_left(job: JobInfo) -> float:
    """Returns the remaining work a job declares, else as much as it has done."""
    return max(job.work_left if job.work_left is not None else job.work_done, 0.0)


def _remaining_s(job: JobInfo, size_options: SizeOptions) -> Floats:
    if job.work_left is None:
        return np.full(len(size_options.sizes), np.inf)
    return job.work_left / np.maximum(size_options.rates, 1e-12)


def _allocation(job: JobInfo, workers: WorkersByNode, snapshot: Snapshot, options: Sequence[SizeOptions]) -> Allocation:
    count = sum(workers.values())
    if not workers:
        return Allocation(
            {}, f"waits for {job.min_size} workers: jobs that end sooner or came earlier have the devices"
        )
    kind = snapshot.nodes_by_name[next(iter(workers))].kind
    batch = next((size_options.batch_config(job, count) for size_options in options if size_options.kind == kind), None)
    if batch is None and job.rates is not None:
        batch = job.rates.batch(count, len(workers), kind)
    if count >= job.max_workers:
        return Allocation(workers, f"all {count} workers it can use", batch=batch)
    reason = (
        f"{count} of {job.max_workers} workers: more would gain less than they cost, or than other jobs gain from them"
    )
    return Allocation(workers, reason, batch=batch)


POLICY = GoodputPolicy
