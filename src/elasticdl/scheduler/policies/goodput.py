"""Our own: the most useful work a second for all jobs together, short ones first, with changes that are worth it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduler.interface import Decision, Floats
from elasticdl.scheduler.placement import place
from elasticdl.scheduler.plan import Allocation, Plan
from elasticdl.scheduler.policies import knapsack
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.snapshot import Job, Snapshot, Workers

EXACT_DEVICES = 512


@dataclass(frozen=True)
class GoodputPolicy:
    name: str = "goodput"
    is_rigid: bool = False
    interval_s: float = 60.0
    asks_at_events: bool = True
    adapts_batch: bool = True
    needs_oracle: bool = False
    horizon_s: float = 600.0
    alpha: float = 0.3
    floor_s: float = 300.0
    heq: float = 0.0  # >0: rank weights
    bonus: float = 1.0
    first: int = 4
    declared: bool = True
    rho: float = 0.0
    power: float = 1.0
    calm: float = 0.0
    cap_s: float = 1e12
    serve: float = 0.0
    kin: bool = False
    growth: int = 2
    crowd: int = 0
    recent: bool = True

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        jobs = sorted(snapshot.jobs, key=lambda job: (job.submitted_at, job.name))
        known = dict(memory or {})
        if self.kin:
            for job in jobs:
                if job.rates is not None and job.family and len(job.speeds) > known.get(job.family, (0, None, 0))[0]:
                    known[job.family] = (len(job.speeds), job.rates, max(s.workers for s in job.speeds))
        tables = [self._table(job, snapshot, known) for job in jobs]
        weights = self._weights(snapshot, jobs, tables)
        choices = []
        for job, (sizes, rates), weight in zip(jobs, tables, weights, strict=True):
            choices.append((sizes * job.devices, self._values(snapshot.now, job, sizes, rates, weight)))
        pick = knapsack.exact if snapshot.devices <= EXACT_DEVICES else knapsack.by_hull
        picked = pick(choices, snapshot.devices)
        counts = {
            job.name: int(sizes[place]) if place >= 0 else 0
            for job, (sizes, _), place in zip(jobs, tables, picked, strict=True)
        }
        given = self._placed(snapshot, jobs, counts)
        return Decision(Plan({job.name: _answer(job, given[job.name]) for job in jobs}), known)

    def _table(self, job: Job, snapshot: Snapshot, known: Any) -> tuple[NDArray[np.int64], Floats]:
        per_node = max(snapshot.devices_per_node // job.devices, 1)
        seen = max((one.workers for one in job.speeds), default=0)
        most = min(job.maximum, snapshot.devices // job.devices)
        if job.rates is not None:
            if job.family in known:
                seen = max(seen, known[job.family][2])
            most = min(most, max(self.growth * seen, job.minimum))
        elif job.family in known:
            most = min(most, max(self.growth * known[job.family][2], job.minimum))
        else:
            most = min(most, max(self.first, job.minimum))
        wanted = {*range(1, per_node + 1), *range(per_node, most + 1, per_node), job.count, job.minimum}
        sizes = np.array([size for size in sorted(wanted) if size <= most and job.allows(size)] or [job.minimum])
        nodes = np.ceil(sizes / per_node)
        if job.is_running and len(job.workers) > 1:
            nodes = np.where(sizes == job.count, len(job.workers), nodes)
        model = job.rates
        if job.family in known and len(job.speeds) < 3 and known[job.family][0] >= 3:
            model = known[job.family][1]
        rates = model.at(sizes, nodes) if model else sizes.astype(float)
        return sizes, rates

    def _weights(
        self, snapshot: Snapshot, jobs: list[Job], tables: list[tuple[NDArray[np.int64], Floats]]
    ) -> list[float]:
        alone = [
            self._left_s(job, float(rates[0] / sizes[0])) for job, (sizes, rates) in zip(jobs, tables, strict=True)
        ]
        if not self.heq:
            alpha = self.alpha * (min(1.0, (len(jobs) - 1) / self.crowd) if self.crowd else 1.0)
            out = [(min(left, self.cap_s) + self.floor_s) ** -alpha * self.floor_s**alpha for left in alone]
            if self.rho:
                fair = max(snapshot.devices / max(len(jobs), 1), 1.0)
                for i, job in enumerate(jobs):
                    if job.rates is None or job.work_left is None:
                        continue
                    per = snapshot.devices_per_node
                    r = float(
                        job.rates.at(np.array([min(int(fair), job.maximum)]), np.array([math.ceil(fair / per)]))[0]
                    )
                    whole = (job.work_left + job.work_done) / r + job.change_cost_s
                    est = (snapshot.now - job.submitted_at + job.work_left / r) / whole
                    if est > self.rho:
                        out[i] *= (est / self.rho) ** 3
            return out
        order = np.argsort([-left for left in alone], kind="stable")
        weights = np.empty(len(jobs))
        for rank, place in enumerate(order.tolist(), start=1):
            weights[place] = ((rank**self.heq - (rank - 1) ** self.heq) / len(jobs) ** self.heq) ** (1 / self.heq)
        return weights.tolist()

    def _left_s(self, job: Job, rate: float) -> float:
        if self.declared and job.work_left is not None:
            return job.work_left / rate
        return max(job.work_done, 0.0) / rate if rate else 0.0

    def _values(self, now: float, job: Job, sizes: NDArray[np.int64], rates: Floats, weight: float) -> Floats:
        one = float(rates[0] / sizes[0]) or 1.0
        speedups = rates / one
        cost = job.change_cost_s
        with np.errstate(divide="ignore"):
            left = np.where(
                rates > 0,
                (job.work_left if job.work_left is not None and self.declared else math.inf) / rates,
                math.inf,
            )
        calm = math.inf
        if job.started_at is not None and self.calm:
            calm = self.calm * (now - job.started_at + cost) / (job.restarts + 1)
            if self.recent and job.changed_at is not None:
                calm = max(calm, now - job.changed_at)
        horizon = np.minimum(min(self.horizon_s, calm), left + cost)
        kept = np.where(sizes == job.count, 1.0, np.maximum(1.0 - cost / horizon, 0.01))
        worth = np.maximum(speedups * kept, 1e-6)
        if self.power == 0:
            return self.serve + weight * np.maximum(np.log(worth) + self.bonus, 1e-6)
        return self.serve + weight * np.maximum((worth**self.power - 1) / self.power + self.bonus, 1e-6)

    def _placed(self, snapshot: Snapshot, jobs: list[Job], counts: dict[str, int]) -> dict[str, Workers]:
        room = Room(snapshot.nodes)
        given: dict[str, Workers] = {}
        for job in jobs:
            if counts[job.name] == job.count and job.is_running and room.holds(job, job.workers):
                given[job.name] = job.workers
                room.take(job, job.workers)
        for job in sorted(jobs, key=lambda job: -counts[job.name]):
            if job.name in given:
                continue
            given[job.name] = {}
            for size in reversed(job.allowed(counts[job.name])):
                found = place(room, job, size)
                if found is not None:
                    given[job.name] = found
                    break
            room.take(job, given[job.name])
        return given


def _answer(job: Job, workers: Workers) -> Allocation:
    count = sum(workers.values())
    if not workers:
        return Allocation({}, "waits")
    batch = job.rates.batch(count, len(workers)) if job.rates else None
    return Allocation(workers, f"{count} workers", batch=batch)


POLICY = GoodputPolicy
