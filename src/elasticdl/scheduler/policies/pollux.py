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

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.placement import meets_demands, place
from elasticdl.scheduler.plan import Allocation, Plan
from elasticdl.scheduler.policies import genetic
from elasticdl.scheduler.policies.genetic import Problem, States
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.settling import can_all_stay, fit
from elasticdl.scheduler.snapshot import Job, Snapshot, Workers


@dataclass(frozen=True)
class Memory:
    """Of the last decision."""

    round: int
    now: float
    jobs: tuple[str, ...]
    nodes: tuple[str, ...]
    states: States
    answer: Mapping[str, Workers] = field(default_factory=dict)


@dataclass(frozen=True)
class Pollux:
    name: str = "pollux"
    is_rigid: bool = False
    interval_s: float = 60.0
    asks_at_events: bool = False
    adapts_batch: bool = True
    needs_oracle: bool = False
    exponent: float = -1.0
    restart_s: float = 30.0
    population: int = 100
    generations: int = 100
    seed: int = 0

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        jobs = sorted(snapshot.jobs, key=lambda job: (job.attained_s, job.submitted_at, job.name))
        nodes = sorted(snapshot.nodes, key=lambda node: (len(node.name), node.name))
        if not jobs or not nodes:
            return Decision(Plan({job.name: Allocation({}, "waits: there is no node") for job in jobs}), memory)
        turn = memory.round + 1 if memory else 0
        if memory and memory.now == snapshot.now and all(memory.answer.get(j.name) == j.workers for j in jobs):
            chosen, states = [job.workers for job in jobs], memory.states
            names = memory.jobs
        else:
            problem = Problem.of(snapshot, jobs, nodes, self.exponent, self.restart_s)
            start = _carried_over(memory, jobs, [node.name for node in nodes], problem.now)
            random = np.random.default_rng([self.seed, turn])
            states = genetic.search(problem, start, self.population, self.generations, random)
            best = states[int(np.argmax(problem.fitness(states)[0]))]
            worth = problem.fitness(np.stack([best, problem.now]))[0]
            if worth[0] <= worth[1] + 1e-12 and can_all_stay(snapshot.nodes, jobs):
                best = problem.now
            chosen = [{nodes[n].name: int(best[j, n]) for n in np.flatnonzero(best[j])} for j in range(len(jobs))]
            names = tuple(job.name for job in jobs)
        plan = _checked(snapshot, jobs, chosen)
        answer = {job.name: plan.allocations[job.name].workers for job in jobs}
        return Decision(plan, Memory(turn, snapshot.now, names, tuple(node.name for node in nodes), states, answer))


def _carried_over(memory: Memory | None, jobs: list[Job], nodes: list[str], now: NDArray[Any]) -> States:
    """The last plans, for those jobs and nodes that are still there."""
    if memory is None:
        return now[None]
    states = np.zeros((len(memory.states), len(jobs), len(nodes)), now.dtype)
    rows = {name: place for place, name in enumerate(memory.jobs)}
    columns = {name: place for place, name in enumerate(memory.nodes)}
    same_jobs = [(place, rows[job.name]) for place, job in enumerate(jobs) if job.name in rows]
    same_nodes = [(place, columns[name]) for place, name in enumerate(nodes) if name in columns]
    if same_jobs and same_nodes:
        (to_job, from_job), (to_node, from_node) = zip(*same_jobs, strict=True), zip(*same_nodes, strict=True)
        every = range(len(states))
        states[np.ix_(every, to_job, to_node)] = memory.states[np.ix_(every, from_job, from_node)]
    return states


def _checked(snapshot: Snapshot, jobs: list[Job], chosen: list[Workers]) -> Plan:
    """With what the search knows nothing of: other resources than devices, demands; and nobody waits for nothing."""
    room = Room(snapshot.nodes)
    given: dict[str, Workers] = {}
    for job, workers in zip(jobs, chosen, strict=True):
        if workers and not (room.holds(job, workers) and meets_demands(room, job, workers)):
            workers = fit(room, job, sum(workers.values()))
        room.take(job, workers)
        given[job.name] = workers
    for job in jobs:
        if not given[job.name] and room.free:
            given[job.name] = place(room, job, job.least) or {}
            room.take(job, given[job.name])
    return Plan({job.name: _answer(job, given[job.name]) for job in jobs})


def _answer(job: Job, workers: Workers) -> Allocation:
    count = sum(workers.values())
    if not workers:
        return Allocation({}, "waits: others gain more from what is free, for now")
    batch = job.rates.batch(count, len(workers)) if job.rates else None
    return Allocation(workers, f"{count} workers on {len(workers)} nodes: the best mean of speedups found", batch=batch)


POLICY = Pollux
