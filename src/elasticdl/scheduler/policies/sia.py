"""Sia (Jayaram Subramanya et al., SOSP'23): numbers and kinds of devices together, by an integer program each round.

A job runs with one of few configurations on one kind: 1, 2, 4, … workers up to what a node holds, then whole nodes.
Its goodput in each, by its rates, is divided by its least and multiplied by its fewest workers, G. Another
configuration than the present one is worth r·G, r = (T - N·S) / (T + S) with its age T, its changes so far N and what
the next one costs, S (1 for jobs younger than S). The program chooses at most one configuration for each job within
the devices of each kind so that the sum of (r·G)**p, and of lambda for each job without any, is least (p < 0; for
p > 0 the sum is maximised). Rounds are 60 s; jobs start with their least and at most double in a round. No job is split
that fits on a node; larger ones take whole nodes.

Deviations. (r·G)**p is at most 1 for p < 0, so that moving a job never costs more than stopping it, and not rounded.
Starting a job that has no workers is never discounted. The least size of a job and all sizes that it allows explicitly
are configurations too, though they may share nodes; from these it may more than double if there is none between. A job
that demands several kinds, or is too large for each, has configurations over kinds, as the empty cluster would place
it. Equally good answers prefer what runs, then the older jobs. Rates of kinds that were never tried are the rates'
business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from elasticdl.scheduler.configurations import Configuration, Configurations
from elasticdl.scheduler.interface import Decision, Floats
from elasticdl.scheduler.models.choice import choose
from elasticdl.scheduler.plan import Allocation, Plan
from elasticdl.scheduler.settling import in_order
from elasticdl.scheduler.snapshot import Job, Node, Snapshot, Workers
from elasticdl.scheduler.whole_nodes import lay_out

_EARLY_S = 1.0  # a round that ends so soon is over: timers are not exact
_STAYS, _OLDER = 1e-3, 1e-4  # of the objective, where it does not care
_SLOW = 1e-4  # what a goodput of nothing counts for


@dataclass(frozen=True)
class Memory:
    at: float  # when this round began
    nodes: Mapping[str, Node]
    had: Mapping[str, int]  # workers of each job before it
    plan: Plan


@dataclass(frozen=True)
class Sia:
    name: str = "sia"
    p: float = -0.5
    unserved: float = 1.1  # lambda
    gap: float = 1e-4  # between the answer and the best possible, as a part of it
    is_rigid: bool = False
    interval_s: float = 60.0
    asks_at_events: bool = False
    adapts_batch: bool = True
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        past: Memory | None = memory
        is_new = past is None or snapshot.now >= past.at + self.interval_s - _EARLY_S
        if past and not is_new and set(past.had) == set(snapshot.by_name) and past.nodes == snapshot.node_of:
            return Decision(past.plan, past)
        queue = in_order(snapshot.jobs)
        old = past.had if past and not is_new else {}
        had = {job.name: old.get(job.name, job.count) for job in queue}
        chosen = self._chosen(snapshot, queue, had)
        given = lay_out(snapshot.nodes, [_wanted(job, chosen.get(job.name)) for job in queue], snapshot.by_name)
        plan = Plan({job.name: _answer(snapshot, job, given[job.name]) for job in queue})
        at = snapshot.now if past is None or is_new else past.at
        return Decision(plan, Memory(at, snapshot.node_of, had, plan))

    def _chosen(self, snapshot: Snapshot, queue: list[Job], had: Mapping[str, int]) -> dict[str, Configuration]:
        table = Configurations(snapshot)
        options: list[tuple[int, Configuration]] = []
        costs: list[float] = []
        for row, job in enumerate(queue):
            able = table.of(job)
            worth = goodputs(job, able, table)
            now = table.present(job, able)
            factor = restart_factor(job, snapshot.now) if now is not None else 1.0
            most = _most([config.workers for config in able], had[job.name])
            for config, value in zip(able, worth.tolist(), strict=True):
                if config.workers <= most:
                    cost = self._cost(value * (1.0 if config is now else factor)) - abs(self.unserved)
                    options.append((row, config))
                    costs.append(cost - _STAYS * (config is now) - _OLDER * (1 - row / len(queue)))
        capacity = [float(table.devices[kind]) for kind in table.kinds]
        uses = [[float(config.devices.get(kind, 0)) for kind in table.kinds] for _, config in options]
        picked = choose([row for row, _ in options], costs, uses, capacity, self.gap)
        return {queue[options[place][0]].name: options[place][1] for place in picked}

    def _cost(self, worth: float) -> float:
        if self.p < 0:
            return float(min(max(worth, _SLOW) ** self.p, 1.0))
        return float(-(max(worth, 0.0) ** self.p))


def goodputs(job: Job, able: list[Configuration], table: Configurations) -> Floats:
    """Of each configuration, over the least of them, times the fewest workers."""
    sizes = np.array([config.workers for config in able])
    rates = np.zeros(len(able))
    for kind in {config.kind for config in able}:
        places = [place for place, config in enumerate(able) if config.kind == kind]
        rates[places] = table.speeds.at(job, sizes[places], kind)
    rates = np.maximum(rates, _SLOW)
    result: Floats = rates / rates.min(initial=np.inf) * sizes.min(initial=1 << 30)
    return result


def restart_factor(job: Job, now: float) -> float:
    """What is left of its goodput if it changes once more, as often as it did."""
    age = now - (job.submitted_at if job.started_at is None else job.started_at)
    if age < job.change_cost_s or age <= 0:
        return 1.0
    return max(age - job.restarts * job.change_cost_s, 0.0) / (age + job.change_cost_s)


def _most(sizes: list[int], had: int) -> int:
    """Starts with its least; at most doubles, or takes the next size there is."""
    if not had:
        return min(sizes, default=0)
    return max(2 * had, min((size for size in sizes if size > had), default=0))


def _wanted(job: Job, config: Configuration | None) -> tuple[Job, int]:
    if config is None:
        return job, 0
    return job if config.kind is None else replace(job, kinds=(config.kind,)), config.workers


def _answer(snapshot: Snapshot, job: Job, workers: Workers) -> Allocation:
    count = sum(workers.values())
    if not workers:
        return Allocation({}, "waits this round: the devices do more for other jobs")
    kinds = sorted({snapshot.node_of[name].kind for name in workers})
    batch = job.rates.batch(count, len(workers), kinds[0]) if job.rates is not None and len(kinds) == 1 else None
    where = f" on {' and '.join(kinds)}" if any(kinds) else ""
    return Allocation(workers, f"{count} workers{where}: the best goodput for all this round", batch=batch)


POLICY = Sia
