"""Pollux (OSDI'21): allocations with the best power mean of speedups, found by a genetic search.

SPEEDUP of a job is its goodput over that of a fair share of the cluster, batch sizes co-adapted in both; the plan with
the greatest power mean (p = −1) of speedups wins. A job that would change is worth less by its age, its restarts and
what a restart costs. No two jobs on several nodes share one; a job gets at most twice the workers it was measured with.
NSGA-II over matrices of jobs by nodes: 100 plans, 100 generations, started from the last ones; asked every 60 s.

Deviations: written for NumPy without pymoo, so that other random numbers are drawn; seeded by the number of the
decision; plans that are no better than what is there change nothing; a job that comes this very second, whose speedup
counts for nothing by the rule of restarts, starts with its least if that is free. The cluster is not resized.
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
    """Of the last decision."""

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
        turn = memory.round + 1 if memory else 0
        if (
            memory
            and memory.decided_at == snapshot.now
            and all(memory.allocated.get(j.name) == j.workers for j in jobs)
        ):
            chosen, states = [job.workers for job in jobs], memory.plans
            names = memory.jobs
        else:
            problem = GeneticSearchProblem.from_snapshot(snapshot, jobs, nodes, self.fairness_power, self.restart_s)
            start = _carry_over_plans(memory, jobs, [node.name for node in nodes], problem.current)
            random = np.random.default_rng([self.seed, turn])
            states = search_plans(problem, start, self.population, self.generations, random)
            best = states[int(np.argmax(problem.fitness(states)[0]))]
            worth = problem.fitness(np.stack([best, problem.current]))[0]
            if worth[0] <= worth[1] + 1e-12 and can_all_stay(snapshot.nodes, jobs):
                best = problem.current
            chosen = [{nodes[n].name: int(best[j, n]) for n in np.flatnonzero(best[j])} for j in range(len(jobs))]
            names = tuple(job.name for job in jobs)
        plan = _build_plan(snapshot, jobs, chosen)
        answer = {job.name: plan.allocations[job.name].workers for job in jobs}
        return Decision(plan, Memory(turn, snapshot.now, names, tuple(node.name for node in nodes), states, answer))


def _carry_over_plans(memory: Memory | None, jobs: list[JobInfo], nodes: list[str], now: NDArray[Any]) -> PlanMatrices:
    """The last plans, for those jobs and nodes that are still there."""
    if memory is None:
        return now[None]
    states = np.zeros((len(memory.plans), len(jobs), len(nodes)), now.dtype)
    rows = {name: place for place, name in enumerate(memory.jobs)}
    columns = {name: place for place, name in enumerate(memory.nodes)}
    same_jobs = [(place, rows[job.name]) for place, job in enumerate(jobs) if job.name in rows]
    same_nodes = [(place, columns[name]) for place, name in enumerate(nodes) if name in columns]
    if same_jobs and same_nodes:
        (to_job, from_job), (to_node, from_node) = zip(*same_jobs, strict=True), zip(*same_nodes, strict=True)
        every = range(len(states))
        states[np.ix_(every, to_job, to_node)] = memory.plans[np.ix_(every, from_job, from_node)]
    return states


def _build_plan(snapshot: Snapshot, jobs: list[JobInfo], chosen: list[WorkersByNode]) -> AllocationPlan:
    """With what the search knows nothing of: other resources than devices, demands; and nobody waits for nothing."""
    room = FreeResources(snapshot.nodes)
    given: dict[str, WorkersByNode] = {}
    for job, workers in zip(jobs, chosen, strict=True):
        if workers and not (room.can_hold(job, workers) and meets_constraints(room, job, workers)):
            workers = place_at_most(room, job, sum(workers.values()))
        room.allocate(job, workers)
        given[job.name] = workers
    for job in jobs:
        if not given[job.name] and room.free_devices:
            given[job.name] = place_workers(room, job, job.min_size) or {}
            room.allocate(job, given[job.name])
    return AllocationPlan({job.name: _allocation(job, given[job.name]) for job in jobs})


def _allocation(job: JobInfo, workers: WorkersByNode) -> Allocation:
    count = sum(workers.values())
    if not workers:
        return Allocation({}, "waits: others gain more from what is free, for now")
    batch = job.rates.batch(count, len(workers)) if job.rates else None
    return Allocation(workers, f"{count} workers on {len(workers)} nodes: the best mean of speedups found", batch=batch)


POLICY = Pollux


PlanMatrices = NDArray[np.int16]
"""Plans by jobs by nodes: workers."""

MAX_NODES_PER_JOB = 16  # of one job


@dataclass(frozen=True)
class GeneticSearchProblem:
    """What is searched for, as arrays."""

    current: PlanMatrices  # jobs by nodes
    speedup: Floats  # jobs by number of nodes by number of workers
    penalty: Floats  # of a job that changes
    scale: Floats  # of speedups: those of a whole node are 1
    allowed: NDArray[np.int16]  # jobs by number of workers: the greatest allowed number up to it
    node_capacity: NDArray[np.int16]  # jobs by nodes: workers that fit
    devices: NDArray[np.int16]  # of nodes
    devices_per_worker: NDArray[np.int16]  # devices of a worker, by job
    exponent: float

    @classmethod
    def from_snapshot(
        cls, snapshot: Snapshot, jobs: list[JobInfo], nodes: list[NodeInfo], exponent: float, restart_s: float
    ) -> GeneticSearchProblem:
        columns = {node.name: place for place, node in enumerate(nodes)}
        now = np.zeros((len(jobs), len(nodes)), np.int16)
        for row, job in enumerate(jobs):
            for name, count in job.workers.items():
                if name in columns:
                    now[row, columns[name]] = count
        each = np.array([job.devices for job in jobs], np.int16)
        devices = np.array([node.devices for node in nodes], np.int16)
        runs = np.array([[job.can_run_on(node) for node in nodes] for job in jobs])
        room = np.where(runs, devices[None] // each[:, None], 0).astype(np.int16)
        # Jobs may have more than there is room for, where a node lost devices.
        most = int(max(room.sum(axis=1).max(initial=1), now.sum(axis=1).max(initial=1)))
        counts = np.arange(most + 1)
        limits = [min(job.max_workers, max(2 * _max_measured_workers(job), job.min_workers)) for job in jobs]
        sizes = counts.tolist()
        allowed = np.array(
            [[job.max_size_up_to(min(n, top)) for n in sizes] for job, top in zip(jobs, limits, strict=True)]
        )
        age = np.array([snapshot.now - job.submitted_at for job in jobs])
        restarts = np.array([job.restarts for job in jobs])
        penalty = np.maximum(age - restarts * restart_s, 0.0) / (age + restart_s)
        total = max(snapshot.total_devices, 1)
        speedup = np.stack(
            [_speedups(job, total, len(jobs), min(len(nodes), MAX_NODES_PER_JOB), counts) for job in jobs]
        )
        scale = each / total * len(nodes)
        return cls(now, speedup, penalty, scale, allowed.astype(np.int16), room, devices, each, exponent)

    def fitness(self, states: PlanMatrices) -> tuple[Floats, Floats]:
        """(power mean of speedups, utility of the devices) of each plan; both shall be great."""
        nodes, workers = np.count_nonzero(states, axis=2), states.sum(axis=2)
        rows = np.arange(states.shape[1])
        speedups = self.speedup[rows, nodes, workers]
        active = (states.any(axis=1) * self.devices).sum(axis=1)
        utility = (speedups * self.devices_per_worker).sum(axis=1) / np.maximum(active, 1)
        changed = (states != self.current).any(axis=2)
        scaled = speedups * self.scale * np.where(changed, self.penalty, 1.0) + 1e-3
        return np.mean(scaled**self.exponent, axis=1) ** (1.0 / self.exponent), utility

    def repair(self, states: PlanMatrices, random: np.random.Generator) -> PlanMatrices:
        """The nearest plans that keep the rules; earlier jobs go first."""
        wide = np.count_nonzero(states, axis=2) > 1
        states = np.where(((states > 0) & wide[:, :, None]).cumsum(axis=1, dtype=np.int16) > 1, 0, states)
        order = np.argsort(random.random(states.shape, dtype=np.float32), axis=2)
        states = np.minimum(
            np.take_along_axis(states, order, axis=2), np.take_along_axis(self.node_capacity[None], order, axis=2)
        )
        states = self._capped(states)
        used = np.minimum((states > 0).cumsum(axis=2, dtype=np.int16), MAX_NODES_PER_JOB)
        states[np.diff(used, axis=2, prepend=np.int16(0)) == 0] = 0
        states = np.take_along_axis(states, np.argsort(order, axis=2), axis=2)
        taken = np.minimum((states * self.devices_per_worker[:, None]).cumsum(axis=1, dtype=np.int16), self.devices)
        return self._capped(np.diff(taken, axis=1, prepend=np.int16(0)) // self.devices_per_worker[:, None])

    def _capped(self, states: PlanMatrices) -> PlanMatrices:
        caps = self.allowed[np.arange(states.shape[1]), states.sum(axis=2)]
        below: PlanMatrices = np.minimum(states.cumsum(axis=2, dtype=np.int16), caps[:, :, None])
        kept: PlanMatrices = np.diff(below, axis=2, prepend=np.int16(0))
        return kept

    def mutate(self, states: PlanMatrices, random: np.random.Generator) -> PlanMatrices:
        """Some jobs as they are now; some lose a node; some get more where there is room."""
        back = random.random(states.shape[:2]) < 0.1
        states = np.where(back[:, :, None], self.current, states)
        chance = np.where(random.random(states.shape[:2], dtype=np.float32) < 0.1, 0.1, 0.0)
        states[random.random(states.shape, dtype=np.float32) < chance[:, :, None]] = 0
        free = self.devices - (states * self.devices_per_worker[:, None]).sum(axis=1, dtype=np.int16)
        fits = self.devices_per_worker[None, :, None] <= free[:, None, :]
        here = (states > 0) & fits
        one = fits / np.maximum(fits.sum(axis=1, keepdims=True), 1)
        two = here / np.maximum(here.sum(axis=1, keepdims=True), 1)
        chosen = random.random(states.shape, dtype=np.float32) < one + two - one * two
        top = np.broadcast_to(np.maximum(self.node_capacity, 0) + 1, states.shape)[chosen]
        states[chosen] = random.integers(np.minimum(states[chosen], top - 1), top)
        return states


def search_plans(
    problem: GeneticSearchProblem, start: PlanMatrices, size: int, generations: int, random: np.random.Generator
) -> PlanMatrices:
    """The last population: no plan stands in it twice."""
    states = _drop_duplicates(problem.repair(start.copy(), random))
    rank, crowding = rank_plans(np.stack(problem.fitness(states)))
    for _ in range(generations - 1):
        parents = _tournament(rank, crowding, size, random)
        children = _crossover(states, parents, random)
        children = problem.repair(problem.mutate(children, random), random)
        states = _drop_duplicates(np.concatenate([states, children]))
        values = np.stack(problem.fitness(states))
        rank, crowding = rank_plans(values)
        best = np.lexsort((-crowding, rank))[:size]
        states, rank, crowding = states[best], rank[best], crowding[best]
    return states


def _max_measured_workers(job: JobInfo) -> int:
    return max((one.workers for one in job.speeds), default=0)


def _speedups(job: JobInfo, devices: int, jobs: int, most_nodes: int, counts: NDArray[np.int64]) -> Floats:
    """By number of nodes and of workers, over a fair share of the cluster."""
    fair = np.ceil(devices / job.devices / jobs)
    if job.rates is None:
        table = np.broadcast_to(counts / fair, (most_nodes + 1, len(counts))).copy()
    else:
        nodes, workers = np.meshgrid(np.arange(most_nodes + 1), counts, indexing="ij")
        # Two kinds of placement in the model: on one node, and on several.
        near, far = (
            job.rates.work_per_s(counts, np.ones_like(counts)),
            job.rates.work_per_s(counts, np.full_like(counts, 2)),
        )
        share = float(job.rates.work_per_s(np.array([fair]), np.array([1]))[0])
        table = np.where(nodes > 1, far[workers], near[workers]) / (share or 1.0)
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


def _crossover(states: PlanMatrices, parents: NDArray[np.int64], random: np.random.Generator) -> PlanMatrices:
    """Two children of two: the one's first jobs with the other's last ones."""
    half = len(parents) // 2
    one, two = states[parents[:half]], states[parents[half : 2 * half]]
    points = random.integers(states.shape[1], size=(half, 1))
    swap = (np.arange(states.shape[1])[None] < points)[:, :, None]
    return np.concatenate([np.where(swap, two, one), np.where(swap, one, two)])


def _drop_duplicates(states: PlanMatrices) -> PlanMatrices:
    # Rows that differ have different sums but for one case in 10^15.
    flat = states.reshape(len(states), -1)
    _, first = np.unique(flat @ np.random.default_rng(7).random(flat.shape[1]), return_index=True)
    return states[np.sort(first)]


def rank_plans(values: Floats) -> tuple[Floats, Floats]:
    """Fronts of plans that none dominates, and how alone each stands in its front."""
    first, second = values
    order = np.lexsort((-second, -first))
    heights: list[float] = []  # minus the greatest second value of each front: they rise
    front = np.empty(len(order))
    before, at = (np.inf, np.inf), 0
    for plan, one, two in zip(order.tolist(), first[order].tolist(), second[order].tolist(), strict=True):
        if (one, two) != before:
            # The first front whose members, all no worse in the first value, are worse in the second.
            at = bisect_right(heights, -two)
            heights[at : at + 1] = [-two]
            before = one, two
        front[plan] = at
    return front, _crowding_distance(front, first, second)


def _crowding_distance(front: Floats, first: Floats, second: Floats) -> Floats:
    """Along a front both values run in opposite directions: neighbours in one are neighbours in the other."""
    order = np.lexsort((second, first, front))
    fronts, found = front[order], np.full(len(order), np.inf)
    inner = np.flatnonzero((fronts[1:-1] == fronts[:-2]) & (fronts[1:-1] == fronts[2:])) + 1
    starts = np.searchsorted(fronts, fronts[inner], "left")
    ends = np.searchsorted(fronts, fronts[inner], "right") - 1
    total = np.zeros(len(inner))
    for value in (first[order], second[order]):
        span = np.abs(value[ends] - value[starts])
        total += np.abs(value[inner + 1] - value[inner - 1]) / np.where(span > 0, span, np.inf)
    found[inner] = total
    crowding = np.empty(len(order))
    crowding[order] = found
    return crowding
