"""Pollux (OSDI'21): a genetic search for the plan with the best power mean of speedups.

SPEEDUP of a job is its goodput over that with a fair share of the cluster, with the best batch size in both. The plan
with the greatest power mean of speedups wins (`fairness_power`, p = −1). A job that changes is worth less, by its age,
its restarts and the cost of a restart. No node has two distributed jobs, and a job gets at most twice the workers it
was measured with. NSGA-II searches matrices of jobs by nodes: 100 plans, 100 generations, started from the last plans;
it decides every 60 s.

Deviations:
- The search is written with NumPy instead of pymoo, so other random numbers are drawn; the seed is the number of the
  decision.
- A plan that is no better than the current one changes nothing.
- A job that comes this very second has no speedup by the rule of restarts; it starts at its minimum if that is free.
- The cluster is not resized.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduler.interface import Decision, Floats
from elasticdl.scheduler.placement.assignment import can_all_stay, place_at_most
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import meets_constraints, place_workers
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot, WorkersByNode


@dataclass(frozen=True)
class Memory:
    """The last decision."""

    round: int
    decided_at: float
    jobs: tuple[str, ...]
    nodes: tuple[str, ...]
    plans: PlanMatrices
    allocated: Mapping[str, WorkersByNode] = field(default_factory=dict)


@dataclass(frozen=True)
class Pollux:
    name: str = "pollux"
    is_rigid: bool = False
    interval_s: float = 60.0
    decides_on_events: bool = False
    adapts_batch: bool = True
    needs_oracle: bool = False
    fairness_power: float = -1.0
    restart_s: float = 30.0
    population: int = 100
    generations: int = 100
    seed: int = 0

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        jobs = sorted(snapshot.jobs, key=lambda job: (job.attained_s, job.submitted_at, job.name))
        nodes = sorted(snapshot.nodes, key=lambda node: (len(node.name), node.name))
        if not jobs or not nodes:
            return Decision(
                AllocationPlan({job.name: Allocation({}, "waits: there is no node") for job in jobs}), memory
            )
        round_number = memory.round + 1 if memory else 0
        if (
            memory
            and memory.decided_at == snapshot.now
            and all(memory.allocated.get(j.name) == j.workers for j in jobs)
        ):
            workers_by_job, plans = [job.workers for job in jobs], memory.plans
            job_names = memory.jobs
        else:
            problem = GeneticSearchProblem.from_snapshot(snapshot, jobs, nodes, self.fairness_power, self.restart_s)
            start = _carry_over_plans(memory, jobs, [node.name for node in nodes], problem.current)
            random = np.random.default_rng([self.seed, round_number])
            plans = search_plans(problem, start, self.population, self.generations, random)
            best_plan = plans[int(np.argmax(problem.fitness(plans)[0]))]
            fitness = problem.fitness(np.stack([best_plan, problem.current]))[0]
            if fitness[0] <= fitness[1] + 1e-12 and can_all_stay(snapshot.nodes, jobs):
                best_plan = problem.current
            workers_by_job = [
                {nodes[n].name: int(best_plan[j, n]) for n in np.flatnonzero(best_plan[j])} for j in range(len(jobs))
            ]
            job_names = tuple(job.name for job in jobs)
        plan = _build_plan(snapshot, jobs, workers_by_job)
        allocated = {job.name: plan.allocations[job.name].workers for job in jobs}
        return Decision(
            plan, Memory(round_number, snapshot.now, job_names, tuple(node.name for node in nodes), plans, allocated)
        )


def _carry_over_plans(
    memory: Memory | None, jobs: list[JobInfo], nodes: list[str], current: NDArray[Any]
) -> PlanMatrices:
    """Returns the last plans, restricted to jobs and nodes that still exist."""
    if memory is None:
        return current[None]
    plans = np.zeros((len(memory.plans), len(jobs), len(nodes)), current.dtype)
    rows = {name: index for index, name in enumerate(memory.jobs)}
    columns = {name: index for index, name in enumerate(memory.nodes)}
    same_jobs = [(index, rows[job.name]) for index, job in enumerate(jobs) if job.name in rows]
    same_nodes = [(index, columns[name]) for index, name in enumerate(nodes) if name in columns]
    if same_jobs and same_nodes:
        (to_job, from_job), (to_node, from_node) = zip(*same_jobs, strict=True), zip(*same_nodes, strict=True)
        every = range(len(plans))
        plans[np.ix_(every, to_job, to_node)] = memory.plans[np.ix_(every, from_job, from_node)]
    return plans


def _build_plan(snapshot: Snapshot, jobs: list[JobInfo], workers_by_job: list[WorkersByNode]) -> AllocationPlan:
    """Applies what the search ignores: other resources, constraints, and that no job waits beside free devices."""
    free = FreeResources(snapshot.nodes)
    assigned: dict[str, WorkersByNode] = {}
    for job, workers in zip(jobs, workers_by_job, strict=True):
        if workers and not (free.can_hold(job, workers) and meets_constraints(free, job, workers)):
            workers = place_at_most(free, job, sum(workers.values()))
        free.allocate(job, workers)
        assigned[job.name] = workers
    for job in jobs:
        if not assigned[job.name] and free.free_devices:
            assigned[job.name] = place_workers(free, job, job.min_size) or {}
            free.allocate(job, assigned[job.name])
    return AllocationPlan({job.name: _allocation(job, assigned[job.name]) for job in jobs})


def _allocation(job: JobInfo, workers: WorkersByNode) -> Allocation:
    count = sum(workers.values())
    if not workers:
        return Allocation({}, "waits: other jobs gain more from the free devices")
    batch = job.rates.batch(count, len(workers)) if job.rates else None
    return Allocation(workers, f"{count} workers on {len(workers)} nodes: the best mean of speedups found", batch=batch)


PlanMatrices = NDArray[np.int16]
"""Worker counts, indexed by plan, job and node."""

MAX_NODES_PER_JOB = 16


@dataclass(frozen=True)
class GeneticSearchProblem:
    """The jobs, nodes and speedups of one search, as arrays. Mutation and repair make plans that keep the rules."""

    current: PlanMatrices  # jobs by nodes
    speedup: Floats  # by job, number of nodes and number of workers
    penalty: Floats  # factor on the speedup of a job that changes
    scale: Floats  # of speedups, so that a whole node counts 1
    allowed: NDArray[np.int16]  # by job and number of workers: the greatest allowed number up to it
    node_capacity: NDArray[np.int16]  # by job and node: workers that fit
    devices: NDArray[np.int16]  # of nodes
    devices_per_worker: NDArray[np.int16]  # by job
    exponent: float

    @classmethod
    def from_snapshot(
        cls, snapshot: Snapshot, jobs: list[JobInfo], nodes: list[NodeInfo], exponent: float, restart_s: float
    ) -> GeneticSearchProblem:
        columns = {node.name: index for index, node in enumerate(nodes)}
        current = np.zeros((len(jobs), len(nodes)), np.int16)
        for row, job in enumerate(jobs):
            for name, count in job.workers.items():
                if name in columns:
                    current[row, columns[name]] = count
        devices_per_worker = np.array([job.devices for job in jobs], np.int16)
        devices = np.array([node.devices for node in nodes], np.int16)
        can_run = np.array([[job.can_run_on(node) for node in nodes] for job in jobs])
        node_capacity = np.where(can_run, devices[None] // devices_per_worker[:, None], 0).astype(np.int16)
        # Jobs may have more workers than fit if a node lost devices.
        max_workers = int(max(node_capacity.sum(axis=1).max(initial=1), current.sum(axis=1).max(initial=1)))
        counts = np.arange(max_workers + 1)
        limits = [min(job.max_workers, max(2 * _max_measured_workers(job), job.min_workers)) for job in jobs]
        sizes = counts.tolist()
        allowed = np.array(
            [[job.max_size_up_to(min(size, limit)) for size in sizes] for job, limit in zip(jobs, limits, strict=True)]
        )
        age = np.array([snapshot.now - job.submitted_at for job in jobs])
        restarts = np.array([job.restarts for job in jobs])
        penalty = np.maximum(age - restarts * restart_s, 0.0) / (age + restart_s)
        total = max(snapshot.total_devices, 1)
        speedup = np.stack(
            [_speedups(job, total, len(jobs), min(len(nodes), MAX_NODES_PER_JOB), counts) for job in jobs]
        )
        scale = devices_per_worker / total * len(nodes)
        return cls(
            current,
            speedup,
            penalty,
            scale,
            allowed.astype(np.int16),
            node_capacity,
            devices,
            devices_per_worker,
            exponent,
        )

    def fitness(self, plans: PlanMatrices) -> tuple[Floats, Floats]:
        """Returns the power mean of speedups and the utility of the devices for each plan; greater is better."""
        nodes, workers = np.count_nonzero(plans, axis=2), plans.sum(axis=2)
        rows = np.arange(plans.shape[1])
        speedups = self.speedup[rows, nodes, workers]
        active = (plans.any(axis=1) * self.devices).sum(axis=1)
        utility = (speedups * self.devices_per_worker).sum(axis=1) / np.maximum(active, 1)
        changed = (plans != self.current).any(axis=2)
        scaled = speedups * self.scale * np.where(changed, self.penalty, 1.0) + 1e-3
        return np.mean(scaled**self.exponent, axis=1) ** (1.0 / self.exponent), utility

    def repair(self, plans: PlanMatrices, random: np.random.Generator) -> PlanMatrices:
        """Returns the nearest plans that keep the rules; earlier jobs have precedence."""
        is_distributed = np.count_nonzero(plans, axis=2) > 1
        plans = np.where(((plans > 0) & is_distributed[:, :, None]).cumsum(axis=1, dtype=np.int16) > 1, 0, plans)
        order = np.argsort(random.random(plans.shape, dtype=np.float32), axis=2)
        plans = np.minimum(
            np.take_along_axis(plans, order, axis=2), np.take_along_axis(self.node_capacity[None], order, axis=2)
        )
        plans = self._cap_to_allowed(plans)
        used = np.minimum((plans > 0).cumsum(axis=2, dtype=np.int16), MAX_NODES_PER_JOB)
        plans[np.diff(used, axis=2, prepend=np.int16(0)) == 0] = 0
        plans = np.take_along_axis(plans, np.argsort(order, axis=2), axis=2)
        used_devices = np.minimum(
            (plans * self.devices_per_worker[:, None]).cumsum(axis=1, dtype=np.int16), self.devices
        )
        return self._cap_to_allowed(
            np.diff(used_devices, axis=1, prepend=np.int16(0)) // self.devices_per_worker[:, None]
        )

    def _cap_to_allowed(self, plans: PlanMatrices) -> PlanMatrices:
        caps = self.allowed[np.arange(plans.shape[1]), plans.sum(axis=2)]
        capped_sums: PlanMatrices = np.minimum(plans.cumsum(axis=2, dtype=np.int16), caps[:, :, None])
        capped: PlanMatrices = np.diff(capped_sums, axis=2, prepend=np.int16(0))
        return capped

    def mutate(self, plans: PlanMatrices, random: np.random.Generator) -> PlanMatrices:
        """Resets some jobs to the current plan, removes some nodes, and adds workers on nodes with free devices."""
        is_reset = random.random(plans.shape[:2]) < 0.1
        plans = np.where(is_reset[:, :, None], self.current, plans)
        removal_probability = np.where(random.random(plans.shape[:2], dtype=np.float32) < 0.1, 0.1, 0.0)
        plans[random.random(plans.shape, dtype=np.float32) < removal_probability[:, :, None]] = 0
        free = self.devices - (plans * self.devices_per_worker[:, None]).sum(axis=1, dtype=np.int16)
        fits = self.devices_per_worker[None, :, None] <= free[:, None, :]
        fits_beside = (plans > 0) & fits
        elsewhere = fits / np.maximum(fits.sum(axis=1, keepdims=True), 1)
        in_place = fits_beside / np.maximum(fits_beside.sum(axis=1, keepdims=True), 1)
        is_changed = random.random(plans.shape, dtype=np.float32) < elsewhere + in_place - elsewhere * in_place
        limits = np.broadcast_to(np.maximum(self.node_capacity, 0) + 1, plans.shape)[is_changed]
        plans[is_changed] = random.integers(np.minimum(plans[is_changed], limits - 1), limits)
        return plans


def search_plans(
    problem: GeneticSearchProblem, start: PlanMatrices, size: int, generations: int, random: np.random.Generator
) -> PlanMatrices:
    """Runs NSGA-II and returns the last population, without duplicates."""
    plans = _drop_duplicates(problem.repair(start.copy(), random))
    rank, crowding = rank_plans(np.stack(problem.fitness(plans)))
    for _ in range(generations - 1):
        parents = _tournament(rank, crowding, size, random)
        children = _crossover(plans, parents, random)
        children = problem.repair(problem.mutate(children, random), random)
        plans = _drop_duplicates(np.concatenate([plans, children]))
        values = np.stack(problem.fitness(plans))
        rank, crowding = rank_plans(values)
        best = np.lexsort((-crowding, rank))[:size]
        plans, rank, crowding = plans[best], rank[best], crowding[best]
    return plans


def _max_measured_workers(job: JobInfo) -> int:
    return max((sample.workers for sample in job.speeds), default=0)


def _speedups(job: JobInfo, devices: int, jobs: int, max_nodes: int, counts: NDArray[np.int64]) -> Floats:
    """Speedups over a fair share of the cluster, by number of nodes and of workers."""
    fair_share = np.ceil(devices / job.devices / jobs)
    if job.rates is None:
        table = np.broadcast_to(counts / fair_share, (max_nodes + 1, len(counts))).copy()
    else:
        nodes, workers = np.meshgrid(np.arange(max_nodes + 1), counts, indexing="ij")
        # The model knows two kinds of placement: on one node, and on several.
        on_one_node, on_several_nodes = (
            job.rates.work_per_s(counts, np.ones_like(counts)),
            job.rates.work_per_s(counts, np.full_like(counts, 2)),
        )
        fair_rate = float(job.rates.work_per_s(np.array([fair_share]), np.array([1]))[0])
        table = np.where(nodes > 1, on_several_nodes[workers], on_one_node[workers]) / (fair_rate or 1.0)
    table[0] = 0.0
    table[:, 0] = 0.0
    return table


def _tournament(rank: Floats, crowding: Floats, size: int, random: np.random.Generator) -> NDArray[np.int64]:
    rivals = random.integers(len(rank), size=(2, size))
    first = (rank[rivals[0]], -crowding[rivals[0]])
    second = (rank[rivals[1]], -crowding[rivals[1]])
    better = (first[0] < second[0]) | ((first[0] == second[0]) & (first[1] <= second[1]))
    winners: NDArray[np.int64] = np.where(better, rivals[0], rivals[1])
    return winners


def _crossover(plans: PlanMatrices, parents: NDArray[np.int64], random: np.random.Generator) -> PlanMatrices:
    """Makes two children of two parents: the first jobs of one with the last jobs of the other."""
    half = len(parents) // 2
    first, second = plans[parents[:half]], plans[parents[half : 2 * half]]
    points = random.integers(plans.shape[1], size=(half, 1))
    swap = (np.arange(plans.shape[1])[None] < points)[:, :, None]
    return np.concatenate([np.where(swap, second, first), np.where(swap, first, second)])


def _drop_duplicates(states: PlanMatrices) -> PlanMatrices:
    # Rows that differ have different sums but for one case in 10^15.
    flat = states.reshape(len(states), -1)
    _, first = np.unique(flat @ np.random.default_rng(7).random(flat.shape[1]), return_index=True)
    return states[np.sort(first)]


def rank_plans(values: Floats) -> tuple[Floats, Floats]:
    """Returns the index of each plan's front (0: dominated by none) and its crowding distance within the front."""
    first, second = values
    order = np.lexsort((-second, -first))
    heights: list[float] = []  # minus the greatest second value of each front, ascending
    front = np.empty(len(order))
    previous, index = (np.inf, np.inf), 0
    for plan, first_value, second_value in zip(
        order.tolist(), first[order].tolist(), second[order].tolist(), strict=True
    ):
        if (first_value, second_value) != previous:
            # All members are at least as good in the first value: the first front that is worse in the second one.
            index = bisect_right(heights, -second_value)
            heights[index : index + 1] = [-second_value]
            previous = first_value, second_value
        front[plan] = index
    return front, _crowding_distance(front, first, second)


def _crowding_distance(front: Floats, first: Floats, second: Floats) -> Floats:
    """Along a front the two values are in opposite order, so neighbours in one value are neighbours in the other."""
    order = np.lexsort((second, first, front))
    fronts, distances = front[order], np.full(len(order), np.inf)
    inner = np.flatnonzero((fronts[1:-1] == fronts[:-2]) & (fronts[1:-1] == fronts[2:])) + 1
    starts = np.searchsorted(fronts, fronts[inner], "left")
    ends = np.searchsorted(fronts, fronts[inner], "right") - 1
    total = np.zeros(len(inner))
    for value in (first[order], second[order]):
        span = np.abs(value[ends] - value[starts])
        total += np.abs(value[inner + 1] - value[inner - 1]) / np.where(span > 0, span, np.inf)
    distances[inner] = total
    crowding = np.empty(len(order))
    crowding[order] = distances
    return crowding


POLICY = Pollux
