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

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, vstack

from elasticdl.scheduler.interface import Decision, Floats
from elasticdl.scheduler.placement.assignment import DesiredSize, next_size, place_at_most, sort_by_submission
from elasticdl.scheduler.placement.configurations import ConfigurationTable, DeviceConfiguration
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import resize_in_place
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot, WorkersByNode

_TIMER_TOLERANCE_S = 1.0  # a round that ends so soon is over: timers are not exact
_STAY_BONUS, _AGE_BONUS = 1e-3, 1e-4  # of the objective, where it does not care
_MIN_GOODPUT = 1e-4  # what a goodput of nothing counts for


@dataclass(frozen=True)
class Memory:
    round_started_at: float  # when this round began
    nodes: Mapping[str, NodeInfo]
    workers_before_round: Mapping[str, int]  # workers of each job before it
    plan: AllocationPlan


@dataclass(frozen=True)
class Sia:
    name: str = "sia"
    fairness_power: float = -0.5
    unserved_penalty: float = 1.1  # lambda
    mip_gap: float = 1e-4  # between the answer and the best possible, as a part of it
    is_rigid: bool = False
    interval_s: float = 60.0
    decides_on_events: bool = False
    adapts_batch: bool = True
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        past: Memory | None = memory
        is_new = past is None or snapshot.now >= past.round_started_at + self.interval_s - _TIMER_TOLERANCE_S
        if (
            past
            and not is_new
            and set(past.workers_before_round) == set(snapshot.jobs_by_name)
            and past.nodes == snapshot.nodes_by_name
        ):
            return Decision(past.plan, past)
        queue = sort_by_submission(snapshot.jobs)
        old = past.workers_before_round if past and not is_new else {}
        had = {job.name: old.get(job.name, job.worker_count) for job in queue}
        chosen = self._chosen(snapshot, queue, had)
        given = assign_whole_nodes(
            snapshot.nodes, [_desired_size(job, chosen.get(job.name)) for job in queue], snapshot.jobs_by_name
        )
        plan = AllocationPlan({job.name: _allocation(snapshot, job, given[job.name]) for job in queue})
        at = snapshot.now if past is None or is_new else past.round_started_at
        return Decision(plan, Memory(at, snapshot.nodes_by_name, had, plan))

    def _chosen(
        self, snapshot: Snapshot, queue: list[JobInfo], had: Mapping[str, int]
    ) -> dict[str, DeviceConfiguration]:
        table = ConfigurationTable(snapshot)
        options: list[tuple[int, DeviceConfiguration]] = []
        costs: list[float] = []
        for row, job in enumerate(queue):
            able = table.configurations_of(job)
            worth = normalized_goodputs(job, able, table)
            now = table.current_configuration(job, able)
            factor = restart_factor(job, snapshot.now) if now is not None else 1.0
            most = _max_workers([config.workers for config in able], had[job.name])
            for config, value in zip(able, worth.tolist(), strict=True):
                if config.workers <= most:
                    cost = self._cost(value * (1.0 if config is now else factor)) - abs(self.unserved_penalty)
                    options.append((row, config))
                    costs.append(cost - _STAY_BONUS * (config is now) - _AGE_BONUS * (1 - row / len(queue)))
        capacity = [float(table.devices_by_kind[kind]) for kind in table.kinds]
        uses = [[float(config.devices.get(kind, 0)) for kind in table.kinds] for _, config in options]
        picked = choose_options([row for row, _ in options], costs, uses, capacity, self.mip_gap)
        return {queue[options[place][0]].name: options[place][1] for place in picked}

    def _cost(self, worth: float) -> float:
        if self.fairness_power < 0:
            return float(min(max(worth, _MIN_GOODPUT) ** self.fairness_power, 1.0))
        return float(-(max(worth, 0.0) ** self.fairness_power))


def normalized_goodputs(job: JobInfo, able: list[DeviceConfiguration], table: ConfigurationTable) -> Floats:
    """Of each configuration, over the least of them, times the fewest workers."""
    sizes = np.array([config.workers for config in able])
    rates = np.zeros(len(able))
    for kind in {config.kind for config in able}:
        places = [place for place, config in enumerate(able) if config.kind == kind]
        rates[places] = table.speeds.rates(job, sizes[places], kind)
    rates = np.maximum(rates, _MIN_GOODPUT)
    result: Floats = rates / rates.min(initial=np.inf) * sizes.min(initial=1 << 30)
    return result


def restart_factor(job: JobInfo, now: float) -> float:
    """What is left of its goodput if it changes once more, as often as it did."""
    age = now - (job.submitted_at if job.started_at is None else job.started_at)
    if age < job.change_cost_s or age <= 0:
        return 1.0
    return max(age - job.restarts * job.change_cost_s, 0.0) / (age + job.change_cost_s)


def _max_workers(sizes: list[int], had: int) -> int:
    """Starts with its least; at most doubles, or takes the next size there is."""
    if not had:
        return min(sizes, default=0)
    return max(2 * had, min((size for size in sizes if size > had), default=0))


def _desired_size(job: JobInfo, config: DeviceConfiguration | None) -> tuple[JobInfo, int]:
    if config is None:
        return job, 0
    return job if config.kind is None else replace(job, kinds=(config.kind,)), config.workers


def _allocation(snapshot: Snapshot, job: JobInfo, workers: WorkersByNode) -> Allocation:
    count = sum(workers.values())
    if not workers:
        return Allocation({}, "waits this round: the devices do more for other jobs")
    kinds = sorted({snapshot.nodes_by_name[name].kind for name in workers})
    batch = job.rates.batch(count, len(workers), kinds[0]) if job.rates is not None and len(kinds) == 1 else None
    where = f" on {' and '.join(kinds)}" if any(kinds) else ""
    return Allocation(workers, f"{count} workers{where}: the best goodput for all this round", batch=batch)


POLICY = Sia


def assign_whole_nodes(
    nodes: Iterable[NodeInfo], wanted: Sequence[DesiredSize], jobs: Mapping[str, JobInfo]
) -> dict[str, WorkersByNode]:
    """Workers of each job. Those in `wanted` may be restricted to one kind, those in `jobs` are as they came.

    Who has what it wants stays, if then all find a place; else small jobs move, else all do. Those who find none even
    then, because sizes do not add up to nodes, are split or get fewer; a job that shall have none starts with its
    least all the same where there is room, in the order of `wanted`: nobody waits beside a free device.
    """
    nodes = tuple(nodes)
    asked = sum(1 for _, count in wanted if count)
    for may_stay in (_may_always_stay, _has_whole_nodes, _may_never_stay):
        room, given = _try_layout(nodes, wanted, may_stay)
        if len(given) == asked:
            break
    else:
        room, given = max(
            (_try_layout(nodes, wanted, who) for who in (_may_always_stay, _may_never_stay)),
            key=lambda found: len(found[1]),
        )
    for job, count in wanted:
        if job.name not in given:
            workers = place_at_most(room, job, count) if count else {}
            given[job.name] = workers or place_at_most(room, jobs[job.name], next_size(job, 0))
            room.allocate(job, given[job.name])
    return given


def _try_layout(
    nodes: tuple[NodeInfo, ...], wanted: Sequence[DesiredSize], may_stay: Callable[[FreeResources, JobInfo], bool]
) -> _Layout:
    """Those who find a place, and the room they leave."""
    room = FreeResources(nodes)
    given: dict[str, WorkersByNode] = {}
    rest = []
    for job, count in wanted:
        is_as_wanted = 0 < count == job.worker_count and len(job.workers) <= _min_nodes(room, job, count)
        if is_as_wanted and may_stay(room, job) and room.can_hold(job, job.workers):
            given[job.name] = job.workers
            room.allocate(job, job.workers)
        elif count:
            rest.append((job, count))
    for job, count in sorted(rest, key=lambda one: (-one[1] * one[0].devices, one[0].submitted_at, one[0].name)):
        if (workers := _find_nodes(room, job, count)) is not None:
            given[job.name] = workers
            room.allocate(job, workers)
    return room, given


_Layout = tuple[FreeResources, dict[str, WorkersByNode]]


def _may_always_stay(room: FreeResources, job: JobInfo) -> bool:
    return True


def _has_whole_nodes(room: FreeResources, job: JobInfo) -> bool:
    """Those that have whole nodes."""
    return all(
        count == room.nodes[name].devices // job.devices for name, count in job.workers.items() if name in room.nodes
    )


def _may_never_stay(room: FreeResources, job: JobInfo) -> bool:
    return False


def _find_nodes(room: FreeResources, job: JobInfo, count: int) -> WorkersByNode | None:
    """One node, or whole ones that are free; those that it has now first."""
    if job.constraints:
        return resize_in_place(room, job, count)
    own = sorted(job.workers, key=lambda name: (-job.workers[name], name))
    own = [name for name in own if name in room.nodes and room.workers_that_fit(job, name)]
    one = next((name for name in own if room.workers_that_fit(job, name) >= count), None) or next(
        room.best_fit_nodes(job, count), None
    )
    if one is not None:
        return {one: count}
    if _min_nodes(room, job, count) == 1:
        return None
    chosen: dict[str, int] = {}
    for name in dict.fromkeys([*own, *room.emptiest_nodes(job)]):
        if room.devices[name] == room.nodes[name].devices:
            chosen[name] = min(room.workers_that_fit(job, name), count - sum(chosen.values()))
        if sum(chosen.values()) == count:
            return chosen
    return None


def _min_nodes(room: FreeResources, job: JobInfo, count: int) -> int:
    """That so many workers can be on, if nothing else were there."""
    each = max((node.devices // job.devices for node in room.nodes.values() if job.can_run_on(node)), default=1)
    return math.ceil(count / max(each, 1))


def choose_options(
    whose: Sequence[int],
    costs: Sequence[float],
    uses: Sequence[Sequence[float]],
    capacity: Sequence[float],
    gap: float,
) -> list[int]:
    """Places of the options taken. Option i belongs to `whose[i]`, costs `costs[i]` and takes `uses[i]` of `capacity`.

    Taking none costs nothing. The answer is within `gap` of the best, as a part of it.
    """
    if not costs:
        return []
    owners, number = np.array(whose), len(costs)
    one_each = coo_array((np.ones(number), (owners, np.arange(number))), shape=(int(owners.max()) + 1, number))
    table = vstack([one_each, coo_array(np.array(uses, float).T)]).tocsr()
    limits = np.concatenate([np.ones(one_each.shape[0]), np.array(capacity, float)])
    found = milp(
        np.array(costs),
        integrality=np.ones(number),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(table, -np.inf, limits),
        # HiGHS's presolve prints to standard output now and then, and such programs hardly need it.
        options={"mip_rel_gap": gap, "presolve": False},
    )
    if found.x is None:
        raise RuntimeError(f"the solver found no answer though there is one: {found.message}")
    return [int(place) for place in np.flatnonzero(found.x > 0.5)]
