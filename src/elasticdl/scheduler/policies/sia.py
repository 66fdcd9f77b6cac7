"""Sia (Jayaram Subramanya et al., SOSP'23): numbers and kinds of devices by an integer program in every round.

A job runs in one of a few configurations on one kind of device: 1, 2, 4, … workers within a node, then whole nodes. G
is its goodput in a configuration, by its rate model, divided by the smallest one and multiplied by the smallest number
of workers. A configuration other than the current one is worth r·G, with r = (T - N·S) / (T + S), its age T, its
changes so far N and the cost S of the next one (r = 1 for jobs younger than S). The program chooses at most one
configuration for each job, within the devices of each kind, that minimise the sum of (r·G)**p plus lambda for each job
without one (p < 0; for p > 0 the sum is maximised). Rounds last 60 s. Jobs start at their minimum and at most double in
a round. Jobs that fit on a node are not split, and larger ones get whole nodes.

Deviations:
- (r·G)**p is at most 1 for p < 0, so that moving a job never costs more than stopping it, and it is not rounded.
- Starting a job without workers is never discounted.
- The minimum and all explicitly allowed sizes are configurations too, though they may share nodes; from these a job may
  more than double if there is no size between.
- A job that requires several kinds, or is too large for each, has configurations over several kinds, placed as on the
  empty cluster.
- Among equally good answers running jobs stay, then older jobs go first.
- The rate models decide about kinds on which a job never ran.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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

_TIMER_TOLERANCE_S = 1.0  # a round that ends within this time is over, because timers are inexact
_STAY_BONUS, _AGE_BONUS = 1e-3, 1e-4  # small enough to decide between equal answers only
_MIN_GOODPUT = 1e-4  # a goodput of 0 counts as this


@dataclass(frozen=True)
class Memory:
    round_started_at: float
    nodes: Mapping[str, NodeInfo]
    workers_before_round: Mapping[str, int]  # of each job
    plan: AllocationPlan


@dataclass(frozen=True)
class Sia:
    name: str = "sia"
    fairness_power: float = -0.5
    unserved_penalty: float = 1.1  # lambda: the cost of a job without workers
    mip_gap: float = 1e-4  # relative gap to the optimum at which the solver may stop
    is_rigid: bool = False
    interval_s: float = 60.0
    decides_on_events: bool = False
    adapts_batch: bool = True
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        is_new_round = memory is None or snapshot.now >= memory.round_started_at + self.interval_s - _TIMER_TOLERANCE_S
        if (
            memory
            and not is_new_round
            and set(memory.workers_before_round) == set(snapshot.jobs_by_name)
            and memory.nodes == snapshot.nodes_by_name
        ):
            return Decision(memory.plan, memory)
        queue = sort_by_submission(snapshot.jobs)
        previous_counts = memory.workers_before_round if memory and not is_new_round else {}
        counts_before = {job.name: previous_counts.get(job.name, job.worker_count) for job in queue}
        configurations = self._choose_configurations(snapshot, queue, counts_before)
        assigned = assign_whole_nodes(
            snapshot.nodes, [_desired_size(job, configurations.get(job.name)) for job in queue], snapshot.jobs_by_name
        )
        plan = AllocationPlan({job.name: _allocation(snapshot, job, assigned[job.name]) for job in queue})
        round_started_at = snapshot.now if memory is None or is_new_round else memory.round_started_at
        return Decision(plan, Memory(round_started_at, snapshot.nodes_by_name, counts_before, plan))

    def _choose_configurations(
        self, snapshot: Snapshot, queue: list[JobInfo], counts_before: Mapping[str, int]
    ) -> dict[str, DeviceConfiguration]:
        table = ConfigurationTable(snapshot)
        options: list[tuple[int, DeviceConfiguration]] = []
        costs: list[float] = []
        for row, job in enumerate(queue):
            configurations = table.configurations_of(job)
            goodputs = normalized_goodputs(job, configurations, table)
            current = table.current_configuration(job, configurations)
            factor = restart_factor(job, snapshot.now) if current is not None else 1.0
            max_workers = _max_workers([config.workers for config in configurations], counts_before[job.name])
            for config, value in zip(configurations, goodputs.tolist(), strict=True):
                if config.workers <= max_workers:
                    cost = self._cost(value * (1.0 if config is current else factor)) - abs(self.unserved_penalty)
                    options.append((row, config))
                    costs.append(cost - _STAY_BONUS * (config is current) - _AGE_BONUS * (1 - row / len(queue)))
        capacity = [float(table.devices_by_kind[kind]) for kind in table.kinds]
        uses = [[float(config.devices.get(kind, 0)) for kind in table.kinds] for _, config in options]
        picked = choose_options([row for row, _ in options], costs, uses, capacity, self.mip_gap)
        return {queue[options[index][0]].name: options[index][1] for index in picked}

    def _cost(self, goodput: float) -> float:
        if self.fairness_power < 0:
            return float(min(max(goodput, _MIN_GOODPUT) ** self.fairness_power, 1.0))
        return float(-(max(goodput, 0.0) ** self.fairness_power))


def normalized_goodputs(job: JobInfo, configurations: list[DeviceConfiguration], table: ConfigurationTable) -> Floats:
    """Goodput of each configuration over the smallest one, times the smallest number of workers."""
    sizes = np.array([config.workers for config in configurations])
    rates = np.zeros(len(configurations))
    for kind in {config.kind for config in configurations}:
        indices = [index for index, config in enumerate(configurations) if config.kind == kind]
        rates[indices] = table.speeds.rates(job, sizes[indices], kind)
    rates = np.maximum(rates, _MIN_GOODPUT)
    result: Floats = rates / rates.min(initial=np.inf) * sizes.min(initial=1 << 30)
    return result


def restart_factor(job: JobInfo, now: float) -> float:
    """Returns r: the share of its goodput that a job keeps if it goes on changing as often as it did."""
    age = now - (job.submitted_at if job.started_at is None else job.started_at)
    if age < job.change_cost_s or age <= 0:
        return 1.0
    return max(age - job.restarts * job.change_cost_s, 0.0) / (age + job.change_cost_s)


def _max_workers(sizes: list[int], current: int) -> int:
    """A job starts at its minimum, and at most doubles or takes its next size."""
    if not current:
        return min(sizes, default=0)
    return max(2 * current, min((size for size in sizes if size > current), default=0))


def _desired_size(job: JobInfo, config: DeviceConfiguration | None) -> tuple[JobInfo, int]:
    if config is None:
        return job, 0
    return job if config.kind is None else replace(job, kinds=(config.kind,)), config.workers


def _allocation(snapshot: Snapshot, job: JobInfo, workers: WorkersByNode) -> Allocation:
    count = sum(workers.values())
    if not workers:
        return Allocation({}, "waits this round: other jobs make better use of the devices")
    kinds = sorted({snapshot.nodes_by_name[name].kind for name in workers})
    batch = job.rates.batch(count, len(workers), kinds[0]) if job.rates is not None and len(kinds) == 1 else None
    place_note = f" on {' and '.join(kinds)}" if any(kinds) else ""
    return Allocation(workers, f"{count} workers{place_note}: the best total goodput this round", batch=batch)


def assign_whole_nodes(
    nodes: Iterable[NodeInfo], desired: Sequence[DesiredSize], jobs: Mapping[str, JobInfo]
) -> dict[str, WorkersByNode]:
    """Places jobs without splitting any that fits on a node; larger ones get nodes of their own.

    Jobs in `desired` may be restricted to one kind, those in `jobs` are not. First jobs of the desired size stay
    where they are; if not all fit then, small jobs move, and at last all jobs. A job that fits nowhere even then,
    because sizes do not add up to nodes, is split or gets fewer workers. A job of size 0 starts with its minimum if
    that fits, in the order of `desired`, so that none waits beside free devices.
    """
    nodes = tuple(nodes)
    job_count = sum(1 for _, count in desired if count)
    for may_stay in (_may_always_stay, _has_whole_nodes, _may_never_stay):
        free, assigned = _try_layout(nodes, desired, may_stay)
        if len(assigned) == job_count:
            break
    else:
        free, assigned = max(
            (_try_layout(nodes, desired, may_stay) for may_stay in (_may_always_stay, _may_never_stay)),
            key=lambda layout: len(layout[1]),
        )
    for job, count in desired:
        if job.name not in assigned:
            workers = place_at_most(free, job, count) if count else {}
            assigned[job.name] = workers or place_at_most(free, jobs[job.name], next_size(job, 0))
            free.allocate(job, assigned[job.name])
    return assigned


def _try_layout(
    nodes: tuple[NodeInfo, ...], desired: Sequence[DesiredSize], may_stay: Callable[[FreeResources, JobInfo], bool]
) -> _Layout:
    """Returns the jobs that fit, and the free resources that remain."""
    free = FreeResources(nodes)
    assigned: dict[str, WorkersByNode] = {}
    moving = []
    for job, count in desired:
        has_desired_size = 0 < count == job.worker_count and len(job.workers) <= _min_nodes(free, job, count)
        if has_desired_size and may_stay(free, job) and free.can_hold(job, job.workers):
            assigned[job.name] = job.workers
            free.allocate(job, job.workers)
        elif count:
            moving.append((job, count))
    for job, count in sorted(
        moving,
        key=lambda desired_size: (
            -desired_size[1] * desired_size[0].devices,
            desired_size[0].submitted_at,
            desired_size[0].name,
        ),
    ):
        if (workers := _find_nodes(free, job, count)) is not None:
            assigned[job.name] = workers
            free.allocate(job, workers)
    return free, assigned


_Layout = tuple[FreeResources, dict[str, WorkersByNode]]


def _may_always_stay(free: FreeResources, job: JobInfo) -> bool:
    return True


def _has_whole_nodes(free: FreeResources, job: JobInfo) -> bool:
    """Only jobs that have whole nodes stay."""
    return all(
        count == free.nodes[name].devices // job.devices for name, count in job.workers.items() if name in free.nodes
    )


def _may_never_stay(free: FreeResources, job: JobInfo) -> bool:
    return False


def _find_nodes(free: FreeResources, job: JobInfo, count: int) -> WorkersByNode | None:
    """Returns one node, or whole free nodes; the job's current nodes are preferred."""
    if job.constraints:
        return resize_in_place(free, job, count)
    current_nodes = sorted(job.workers, key=lambda name: (-job.workers[name], name))
    current_nodes = [name for name in current_nodes if name in free.nodes and free.workers_that_fit(job, name)]
    node = next((name for name in current_nodes if free.workers_that_fit(job, name) >= count), None) or next(
        free.best_fit_nodes(job, count), None
    )
    if node is not None:
        return {node: count}
    if _min_nodes(free, job, count) == 1:
        return None
    workers: dict[str, int] = {}
    for name in dict.fromkeys([*current_nodes, *free.emptiest_nodes(job)]):
        if free.devices[name] == free.nodes[name].devices:
            workers[name] = min(free.workers_that_fit(job, name), count - sum(workers.values()))
        if sum(workers.values()) == count:
            return workers
    return None


def _min_nodes(free: FreeResources, job: JobInfo, count: int) -> int:
    """Returns how many empty nodes this many workers need."""
    workers_per_node = max(
        (node.devices // job.devices for node in free.nodes.values() if job.can_run_on(node)), default=1
    )
    return math.ceil(count / max(workers_per_node, 1))


def choose_options(
    owners: Sequence[int],
    costs: Sequence[float],
    uses: Sequence[Sequence[float]],
    capacity: Sequence[float],
    gap: float,
) -> list[int]:
    """Returns the indices of the chosen options, by an integer program that HiGHS solves.

    Option i belongs to `owners[i]`, costs `costs[i]` and takes `uses[i]` of `capacity`. Each owner has at most one
    option, none costs nothing, and the total is within the relative `gap` of the minimum.
    """
    if not costs:
        return []
    owner_rows, option_count = np.array(owners), len(costs)
    one_per_owner = coo_array(
        (np.ones(option_count), (owner_rows, np.arange(option_count))), shape=(int(owner_rows.max()) + 1, option_count)
    )
    coefficients = vstack([one_per_owner, coo_array(np.array(uses, float).T)]).tocsr()
    limits = np.concatenate([np.ones(one_per_owner.shape[0]), np.array(capacity, float)])
    solution = milp(
        np.array(costs),
        integrality=np.ones(option_count),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(coefficients, -np.inf, limits),
        # HiGHS's presolve sometimes prints to standard output, and these programs hardly need it.
        options={"mip_rel_gap": gap, "presolve": False},
    )
    if solution.x is None:
        raise RuntimeError(f"the solver found no answer, though taking no option is one: {solution.message}")
    return [int(index) for index in np.flatnonzero(solution.x > 0.5)]


POLICY = Sia
