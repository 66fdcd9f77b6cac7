"""Gavel (Narayanan et al., OSDI'20): fractions of time on each kind of device by linear programs, given in rounds.

X[job, kind] is the part of its time that a job has its workers on that kind. With what it does a second there,
T[job, kind], its effective rate is the sum of T·X. No job has more than all of its time, no kind more than its
devices. X maximises one number z, where every job's effective rate is at least z times what it needs:
- "max-min": its weight, times its rate at an equal part of every kind, over its devices: least attained service;
- "makespan": the work it has left, so that 1/z is when the last one ends;
- "fairness": what it needs so that no job ends later than rho times when it would have, alone on 1/n of the cluster;
  the least rho for which z reaches 1 is found by bisection.
Rounds are 360 s. Every round the pairs of job and kind with the greatest X over the fraction of time received so far
get their workers, all that the owner asked for or none.

Deviations. Gavel's code bisects on the makespan; 1/z is the exact answer of one program. What all get alike is fixed
first; then the rest of the time goes to the greatest sum of rates, each a part of its job's best. In the middle of a
round who runs goes on, and what is free then goes to others at once; so does what no pair with X > 0 can use. A job
that demands several kinds, or is too large for each alone, is no part of the program: it counts as X = 1/n on no kind.
Unknown work left is believed to be as much as was done. The time alone is that of all its work at the present n.
Two jobs never share a device here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from elasticdl.errors import SpecError
from elasticdl.scheduler.interface import Decision, Floats
from elasticdl.scheduler.models.estimates import SpeedEstimates
from elasticdl.scheduler.placement.assignment import assign_or_repack, sort_by_submission
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import resize_in_place
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, WorkersByNode

_MIN_FRACTION = 1e-6  # of a fraction
KindOrAny = str | None
"""None: several, or whichever was free."""

_TIMER_TOLERANCE_S = 1.0  # a round that ends so soon is over: timers are not exact


@dataclass(frozen=True)
class Memory:
    decided_at: float  # of the last decision
    round_started_at: float
    running: Mapping[str, KindOrAny]  # that each job has now
    received_s: Mapping[str, Mapping[KindOrAny, float]]  # seconds, by job and kind
    age_s: Mapping[str, float]  # how long each job is there


_EMPTY_MEMORY = Memory(0.0, float("-inf"), {}, {}, {})


@dataclass(frozen=True)
class Gavel:
    name: str = "gavel"
    objective: str = "max-min"  # or "makespan", "fairness"
    round_s: float = 360.0
    is_rigid: bool = True
    interval_s: float = 360.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def __post_init__(self) -> None:
        if self.objective not in _OBJECTIVES:
            raise SpecError(f"--policy gavel: objective is one of {list(_OBJECTIVES)}, received {self.objective!r}")

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        past = _update_memory(snapshot, memory or _EMPTY_MEMORY)
        queue = sort_by_submission(job.as_rigid() for job in snapshot.jobs)
        is_new_round = snapshot.now >= past.round_started_at + self.round_s - _TIMER_TOLERANCE_S
        times = self._fractions(snapshot, queue)
        kinds = _choose_jobs(snapshot, queue, times, past, {} if is_new_round else past.running)
        given = _place_jobs(snapshot, queue, kinds)
        running = {job.name: kinds[job.name][0] if job.name in kinds else None for job in queue if given[job.name]}
        round_started_at = snapshot.now if is_new_round else past.round_started_at
        answers = {job.name: _allocation(job, given[job.name], times.get(job.name, {})) for job in queue}
        return Decision(AllocationPlan(answers), replace(past, round_started_at=round_started_at, running=running))

    def _fractions(self, snapshot: Snapshot, queue: list[JobInfo]) -> dict[str, dict[str, float]]:
        """X by job and kind. Jobs that no kind alone has room for are not in it."""
        speeds = SpeedEstimates(snapshot)
        wholes = {job.name: _rates_by_kind(speeds, job) for job in queue}
        able = [job for job in queue if any(wholes[job.name].values())]
        needs = TimeFractionProblem.from_lists(
            devices=[speeds.devices_by_kind[kind] for kind in speeds.kinds],
            scales=[job.rigid_size * job.devices for job in able],
            rates=[[wholes[job.name].get(kind, 0.0) for kind in speeds.kinds] for job in able],
        )
        if not able:
            return {}
        found = solve_time_fractions(needs, _OBJECTIVES[self.objective](snapshot, speeds, able, needs))
        return {
            job.name: dict(zip(speeds.kinds, row, strict=True)) for job, row in zip(able, found.tolist(), strict=True)
        }


def _max_min(
    snapshot: Snapshot, speeds: SpeedEstimates, jobs: list[JobInfo], needs: TimeFractionProblem
) -> list[float]:
    equal = needs.rates @ needs.devices / max(needs.devices.sum(), 1.0)
    return [
        max(job.weight, _MIN_FRACTION) * float(rate) / (job.rigid_size * job.devices)
        for job, rate in zip(jobs, equal, strict=True)
    ]


def _makespan(
    snapshot: Snapshot, speeds: SpeedEstimates, jobs: list[JobInfo], needs: TimeFractionProblem
) -> list[float]:
    return [max(speeds.work_left(job), _MIN_FRACTION) for job in jobs]


def _fairness(
    snapshot: Snapshot, speeds: SpeedEstimates, jobs: list[JobInfo], needs: TimeFractionProblem
) -> list[float]:
    left = [max(speeds.work_left(job), _MIN_FRACTION) for job in jobs]
    elapsed = [max(snapshot.now - job.submitted_at, 0.0) for job in jobs]
    alone = [
        (job.work_done + work) / rate
        for job, work, rate in zip(jobs, left, isolated_rates(needs).tolist(), strict=True)
    ]
    return find_min_rho(needs, left, elapsed, alone)[1]


_OBJECTIVES: dict[str, Callable[[Snapshot, SpeedEstimates, list[JobInfo], TimeFractionProblem], list[float]]] = {
    "max-min": _max_min,
    "makespan": _makespan,
    "fairness": _fairness,
}


def _rates_by_kind(speeds: SpeedEstimates, job: JobInfo) -> dict[str, float]:
    """Its rate with all workers, on each kind that has room for them."""
    if job.constraints:
        return {}
    fits = [kind for kind in speeds.usable_kinds(job) if speeds.devices_by_kind[kind] >= job.rigid_size * job.devices]
    return {kind: speeds.rate(job, job.rigid_size, kind) for kind in fits}


def _update_memory(snapshot: Snapshot, past: Memory) -> Memory:
    """With the time since the last decision counted, and without jobs that are over."""
    passed = max(snapshot.now - past.decided_at, 0.0)
    received: dict[str, Mapping[KindOrAny, float]] = {}
    known: dict[str, float] = {}
    for job in snapshot.jobs:
        seconds = dict(past.received_s.get(job.name, {}))
        if job.name in past.running:
            kind = past.running[job.name]
            seconds[kind] = seconds.get(kind, 0.0) + passed
        received[job.name] = seconds
        known[job.name] = past.age_s[job.name] + passed if job.name in past.age_s else 0.0
    running = {name: kind for name, kind in past.running.items() if name in received}
    return Memory(snapshot.now, past.round_started_at, running, received, known)


def _choose_jobs(
    snapshot: Snapshot,
    queue: list[JobInfo],
    times: Mapping[str, Mapping[str, float]],
    past: Memory,
    running: Mapping[str, KindOrAny],
) -> dict[str, tuple[KindOrAny, WorkersByNode]]:
    """Who runs this round, on which kind; and where all of them fit together. `running` go on in any case."""
    room = FreeResources(snapshot.nodes)
    found: dict[str, tuple[KindOrAny, WorkersByNode]] = {}
    go_on = [(job, running[job.name]) for job in queue if job.name in running]
    for job, kind in [*go_on, *_pairs_by_priority(queue, times, past)]:
        if job.name in found:
            continue
        workers = resize_in_place(
            room,
            _restrict_to_kind(job, kind) if job.name in running else replace(_restrict_to_kind(job, kind), workers={}),
            job.rigid_size,
        )
        if workers is not None:
            room.allocate(job, workers)
            found[job.name] = kind, workers
    return found


def _pairs_by_priority(
    queue: list[JobInfo], times: Mapping[str, Mapping[str, float]], past: Memory
) -> Iterator[tuple[JobInfo, KindOrAny]]:
    """Pairs of job and kind, the greatest X over the fraction received first; at last all, the oldest first."""
    pairs = []
    for job in queue:
        parts: Iterable[tuple[KindOrAny, float]] = [(None, 1.0 / len(queue))]
        for kind, part in times[job.name].items() if job.name in times else parts:
            had = past.received_s[job.name].get(kind, 0.0) / max(past.age_s[job.name], _TIMER_TOLERANCE_S)
            if part > _MIN_FRACTION:
                pairs.append(
                    (-part / max(had, _MIN_FRACTION), -part, job.submitted_at, job.name, kind or "", kind, job)
                )
    for *_, kind, job in sorted(pairs, key=lambda pair: pair[:5]):
        yield job, kind
    for job in queue:
        yield from ((job, kind) for kind in times.get(job.name, {}) if not job.kinds or kind in job.kinds)


def _place_jobs(
    snapshot: Snapshot, queue: list[JobInfo], kinds: Mapping[str, tuple[KindOrAny, WorkersByNode]]
) -> dict[str, WorkersByNode]:
    """Lease renewal: who runs on, and on the same kind, stays where it is."""
    wanted = [
        (_restrict_to_kind(job, kinds[job.name][0]), job.rigid_size) if job.name in kinds else (job, 0) for job in queue
    ]
    return assign_or_repack(snapshot.nodes, wanted, {name: workers for name, (_, workers) in kinds.items()})


def _restrict_to_kind(job: JobInfo, kind: KindOrAny) -> JobInfo:
    return job if kind is None else replace(job, kinds=(kind,))


def _allocation(job: JobInfo, workers: WorkersByNode, times: Mapping[str, float]) -> Allocation:
    parts = [
        f"{part:.0%} of its time{' on ' + kind if kind else ''}" for kind, part in times.items() if part > _MIN_FRACTION
    ]
    due = " and ".join(parts) or "what others leave"
    if workers:
        return Allocation(workers, f"all of its {job.rigid_size} workers this round: {due} is its due")
    return Allocation({}, f"waits this round for its {job.rigid_size} workers: {due} is its due")


POLICY = Gavel


_SLACK = 1e-6  # of what the first program found, left to the second
_TINY = 1e-12


@dataclass(frozen=True)
class TimeFractionProblem:
    """`rates` by job and kind with all its workers, 0 where it cannot run; `scales`: the devices that these take."""

    devices: Floats  # by kind
    scales: Floats  # by job
    rates: Floats

    @staticmethod
    def from_lists(
        devices: Sequence[float], scales: Sequence[float], rates: Sequence[Sequence[float]]
    ) -> TimeFractionProblem:
        return TimeFractionProblem(np.array(devices, float), np.array(scales, float), np.array(rates, float))


def solve_time_fractions(needs: TimeFractionProblem, least: Sequence[float]) -> Floats:
    """X by job and kind: the greatest z for which each job's rate is z times its `least`, so much for all.

    What time is left then gives the greatest sum of rates, each a part of the job's best.
    """
    z, first = solve_max_min(needs, least)
    best = np.maximum(needs.rates.max(axis=1, keepdims=True), _TINY)
    second = _solve_program(needs, np.append(-(needs.rates / best).ravel(), 0.0), least, fixed=z * (1 - _SLACK))
    return first if second is None else second[1]


def solve_max_min(needs: TimeFractionProblem, least: Sequence[float]) -> tuple[float, Floats]:
    """The greatest z, and X."""
    objective = np.zeros(needs.rates.size + 1)
    objective[-1] = -1.0
    found = _solve_program(needs, objective, least)
    # The program has always the answer 0: without one the solver gave up.
    return found if found is not None else (0.0, np.zeros(needs.rates.shape))


def isolated_rates(needs: TimeFractionProblem) -> Floats:
    """The rate of each job that has 1/n of every kind to itself."""
    jobs = max(len(needs.scales), 1)
    parts = needs.devices / jobs / needs.scales[:, None]
    parts /= np.maximum(parts.sum(axis=1, keepdims=True), 1.0)
    rate: Floats = np.maximum((needs.rates * parts).sum(axis=1), _TINY)
    return rate


def find_min_rho(
    needs: TimeFractionProblem, left: Sequence[float], elapsed: Sequence[float], alone: Sequence[float]
) -> tuple[float, list[float]]:
    """The least rho with which every job ends within rho times `alone`, counted from its start; the rates it takes."""
    work, past, ideal = np.array(left), np.array(elapsed), np.array(alone)

    def rates(rho: float) -> Floats:
        wanted: Floats = work / np.maximum(rho * ideal - past, 1e-9)
        return wanted

    low = float((past / ideal).max())
    high = 2 * low + 1.0
    while not _are_rates_feasible(needs, rates(high)) and high < 1e12:
        low, high = high, 4 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _are_rates_feasible(needs, rates(middle)) else (middle, high)
    return high, rates(high).tolist()


def _are_rates_feasible(needs: TimeFractionProblem, rates: Floats) -> bool:
    return solve_max_min(needs, rates.tolist())[0] >= 1.0 - _SLACK


def _solve_program(
    needs: TimeFractionProblem, objective: Floats, least: Sequence[float], fixed: float | None = None
) -> tuple[float, Floats] | None:
    """z, and X that minimises `objective` over (X, z); z is free, or `fixed`."""
    jobs, kinds = needs.rates.shape
    best = np.maximum(needs.rates.max(axis=1), _TINY)
    part = np.maximum(np.array(least, float), _TINY) / best  # of its best rate, at z = 1
    scale = float(part.max())  # the solver's z is near 1
    row, kind = np.divmod(np.arange(jobs * kinds), kinds)
    every, last = np.arange(jobs * kinds), np.full(jobs, jobs * kinds)
    # Rows: all of its time; the devices of each kind; least * z - rate <= 0.
    values = [np.ones(jobs * kinds), needs.scales[row], -needs.rates.ravel() / best[row], part / scale]
    rows = [row, jobs + kind, jobs + kinds + row, jobs + kinds + np.arange(jobs)]
    columns = [every, every, every, last]
    table = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(2 * jobs + kinds, jobs * kinds + 1),
    )
    limits = np.concatenate([np.ones(jobs), needs.devices, np.zeros(jobs)])
    lower = np.append(np.zeros(jobs * kinds), 0.0 if fixed is None else fixed * scale)
    upper = np.append((needs.rates.ravel() > 0).astype(float), np.inf if fixed is None else fixed * scale)
    found = linprog(objective, table.tocsr(), limits, bounds=np.stack([lower, upper], axis=1), method="highs")
    if found.x is None:
        return None
    return float(found.x[-1]) / scale, np.clip(found.x[:-1].reshape(jobs, kinds), 0.0, 1.0)
