"""Gavel (Narayanan et al., OSDI'20): fractions of time on each kind of device by linear programs, realised in rounds.

X[job, kind] is the fraction of time that a job has its workers on that kind, and T[job, kind] its rate there; its
effective rate is the sum of T·X. A job has at most all of its time, a kind at most its devices. X maximises one number
z such that the effective rate of every job is at least z times what it requires:
- "max-min": its weight, times its rate with an equal part of every kind, over its devices (least attained service);
- "makespan": its remaining work, so that 1/z is when the last job ends;
- "fairness": the rate with which no job ends later than rho times when it would have ended alone on 1/n of the cluster;
  bisection finds the smallest rho for which z reaches 1.
Rounds last 360 s. In each round the pairs of job and kind with the greatest X over the fraction of time received so far
get their workers, all that were requested or none.

Deviations:
- Gavel's code bisects on the makespan; here 1/z is the exact answer of one program.
- The required rates are fixed first; the remaining time then maximises the sum of rates, each relative to the job's
  best.
- Within a round running jobs go on, and free devices go to other jobs at once. So do devices that no pair with X > 0
  can use.
- A job that requires several kinds, or is too large for each, is not in the program; it counts as X = 1/n on no kind.
- A job of unknown length is assumed to have as much work left as it did. Its time alone is that of all its work at the
  present n.
- Two jobs never share a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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

_MIN_FRACTION = 1e-6  # smaller fractions count as none
KindOrAny = str | None
"""A kind of device; None: several kinds, or any that was free."""

_TIMER_TOLERANCE_S = 1.0  # a round that ends within this time is over, because timers are inexact


@dataclass(frozen=True)
class Memory:
    decided_at: float
    round_started_at: float
    running: Mapping[str, KindOrAny]  # the kind of each running job
    received_s: Mapping[str, Mapping[KindOrAny, float]]  # by job and kind
    age_s: Mapping[str, float]  # by job


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

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        previous = _update_memory(snapshot, memory or _EMPTY_MEMORY)
        queue = sort_by_submission(job.as_rigid() for job in snapshot.jobs)
        is_new_round = snapshot.now >= previous.round_started_at + self.round_s - _TIMER_TOLERANCE_S
        fractions = self._solve_fractions(snapshot, queue)
        kinds = _choose_jobs(snapshot, queue, fractions, previous, {} if is_new_round else previous.running)
        assigned = _place_jobs(snapshot, queue, kinds)
        running = {job.name: kinds[job.name][0] if job.name in kinds else None for job in queue if assigned[job.name]}
        round_started_at = snapshot.now if is_new_round else previous.round_started_at
        answers = {job.name: _allocation(job, assigned[job.name], fractions.get(job.name, {})) for job in queue}
        return Decision(AllocationPlan(answers), replace(previous, round_started_at=round_started_at, running=running))

    def _solve_fractions(self, snapshot: Snapshot, queue: list[JobInfo]) -> dict[str, dict[str, float]]:
        """Returns X by job and kind, without jobs that do not fit on any one kind."""
        speeds = SpeedEstimates(snapshot)
        rates_by_kind = {job.name: _rates_by_kind(speeds, job) for job in queue}
        schedulable = [job for job in queue if any(rates_by_kind[job.name].values())]
        problem = TimeFractionProblem.from_lists(
            devices=[speeds.devices_by_kind[kind] for kind in speeds.kinds],
            scales=[job.rigid_size * job.devices for job in schedulable],
            rates=[[rates_by_kind[job.name].get(kind, 0.0) for kind in speeds.kinds] for job in schedulable],
        )
        if not schedulable:
            return {}
        fractions = solve_time_fractions(problem, _OBJECTIVES[self.objective](snapshot, speeds, schedulable, problem))
        return {
            job.name: dict(zip(speeds.kinds, row, strict=True))
            for job, row in zip(schedulable, fractions.tolist(), strict=True)
        }


def _max_min(
    snapshot: Snapshot, speeds: SpeedEstimates, jobs: list[JobInfo], problem: TimeFractionProblem
) -> list[float]:
    equal_share_rates = problem.rates @ problem.devices / max(problem.devices.sum(), 1.0)
    return [
        max(job.weight, _MIN_FRACTION) * float(rate) / (job.rigid_size * job.devices)
        for job, rate in zip(jobs, equal_share_rates, strict=True)
    ]


def _makespan(
    snapshot: Snapshot, speeds: SpeedEstimates, jobs: list[JobInfo], problem: TimeFractionProblem
) -> list[float]:
    return [max(speeds.work_left(job), _MIN_FRACTION) for job in jobs]


def _fairness(
    snapshot: Snapshot, speeds: SpeedEstimates, jobs: list[JobInfo], problem: TimeFractionProblem
) -> list[float]:
    work_left = [max(speeds.work_left(job), _MIN_FRACTION) for job in jobs]
    elapsed = [max(snapshot.now - job.submitted_at, 0.0) for job in jobs]
    isolated_s = [
        (job.work_done + work) / rate
        for job, work, rate in zip(jobs, work_left, isolated_rates(problem).tolist(), strict=True)
    ]
    return find_min_rho(problem, work_left, elapsed, isolated_s)[1]


_OBJECTIVES: dict[str, Callable[[Snapshot, SpeedEstimates, list[JobInfo], TimeFractionProblem], list[float]]] = {
    "max-min": _max_min,
    "makespan": _makespan,
    "fairness": _fairness,
}


def _rates_by_kind(speeds: SpeedEstimates, job: JobInfo) -> dict[str, float]:
    """Returns the job's rate with all its workers on each kind that can hold them."""
    if job.constraints:
        return {}
    fitting_kinds = [
        kind for kind in speeds.usable_kinds(job) if speeds.devices_by_kind[kind] >= job.rigid_size * job.devices
    ]
    return {kind: speeds.rate(job, job.rigid_size, kind) for kind in fitting_kinds}


def _update_memory(snapshot: Snapshot, previous: Memory) -> Memory:
    """Adds the time since the last decision, and drops jobs that ended."""
    elapsed_s = max(snapshot.now - previous.decided_at, 0.0)
    received: dict[str, Mapping[KindOrAny, float]] = {}
    age_s: dict[str, float] = {}
    for job in snapshot.jobs:
        seconds = dict(previous.received_s.get(job.name, {}))
        if job.name in previous.running:
            kind = previous.running[job.name]
            seconds[kind] = seconds.get(kind, 0.0) + elapsed_s
        received[job.name] = seconds
        age_s[job.name] = previous.age_s[job.name] + elapsed_s if job.name in previous.age_s else 0.0
    running = {name: kind for name, kind in previous.running.items() if name in received}
    return Memory(snapshot.now, previous.round_started_at, running, received, age_s)


def _choose_jobs(
    snapshot: Snapshot,
    queue: list[JobInfo],
    fractions: Mapping[str, Mapping[str, float]],
    previous: Memory,
    running: Mapping[str, KindOrAny],
) -> dict[str, tuple[KindOrAny, WorkersByNode]]:
    """Chooses the jobs of this round, their kinds and workers that fit together. Jobs in `running` always go on."""
    free = FreeResources(snapshot.nodes)
    placements: dict[str, tuple[KindOrAny, WorkersByNode]] = {}
    continuing = [(job, running[job.name]) for job in queue if job.name in running]
    for job, kind in [*continuing, *_pairs_by_priority(queue, fractions, previous)]:
        if job.name in placements:
            continue
        workers = resize_in_place(
            free,
            _restrict_to_kind(job, kind) if job.name in running else replace(_restrict_to_kind(job, kind), workers={}),
            job.rigid_size,
        )
        if workers is not None:
            free.allocate(job, workers)
            placements[job.name] = kind, workers
    return placements


def _pairs_by_priority(
    queue: list[JobInfo], fractions: Mapping[str, Mapping[str, float]], previous: Memory
) -> Iterator[tuple[JobInfo, KindOrAny]]:
    """Yields pairs of job and kind by X over the fraction received, then all other pairs, the oldest jobs first."""
    pairs = []
    for job in queue:
        kind_fractions: Iterable[tuple[KindOrAny, float]] = [(None, 1.0 / len(queue))]
        for kind, fraction in fractions[job.name].items() if job.name in fractions else kind_fractions:
            received_fraction = previous.received_s[job.name].get(kind, 0.0) / max(
                previous.age_s[job.name], _TIMER_TOLERANCE_S
            )
            if fraction > _MIN_FRACTION:
                pairs.append(
                    (
                        -fraction / max(received_fraction, _MIN_FRACTION),
                        -fraction,
                        job.submitted_at,
                        job.name,
                        kind or "",
                        kind,
                        job,
                    )
                )
    for *_, kind, job in sorted(pairs, key=lambda pair: pair[:5]):
        yield job, kind
    for job in queue:
        yield from ((job, kind) for kind in fractions.get(job.name, {}) if not job.kinds or kind in job.kinds)


def _place_jobs(
    snapshot: Snapshot, queue: list[JobInfo], placements: Mapping[str, tuple[KindOrAny, WorkersByNode]]
) -> dict[str, WorkersByNode]:
    """Places the chosen jobs; a job that goes on with the same kind stays where it is (lease renewal)."""
    desired = [
        (_restrict_to_kind(job, placements[job.name][0]), job.rigid_size) if job.name in placements else (job, 0)
        for job in queue
    ]
    return assign_or_repack(snapshot.nodes, desired, {name: workers for name, (_, workers) in placements.items()})


def _restrict_to_kind(job: JobInfo, kind: KindOrAny) -> JobInfo:
    return job if kind is None else replace(job, kinds=(kind,))


def _allocation(job: JobInfo, workers: WorkersByNode, fractions: Mapping[str, float]) -> Allocation:
    shares = [
        f"{fraction:.0%} of its time{' on ' + kind if kind else ''}"
        for kind, fraction in fractions.items()
        if fraction > _MIN_FRACTION
    ]
    share = " and ".join(shares) or "what others leave"
    if workers:
        return Allocation(workers, f"all of its {job.rigid_size} workers this round: its share is {share}")
    return Allocation({}, f"waits this round for its {job.rigid_size} workers: its share is {share}")


_SLACK = 1e-6  # relative tolerance between the two programs
_TINY = 1e-12


@dataclass(frozen=True)
class TimeFractionProblem:
    """Rates by job and kind with all its workers (0: cannot run there), and the devices these take."""

    devices: Floats  # by kind
    scales: Floats  # devices of each job
    rates: Floats

    @staticmethod
    def from_lists(
        devices: Sequence[float], scales: Sequence[float], rates: Sequence[Sequence[float]]
    ) -> TimeFractionProblem:
        return TimeFractionProblem(np.array(devices, float), np.array(scales, float), np.array(rates, float))


def solve_time_fractions(problem: TimeFractionProblem, required: Sequence[float]) -> Floats:
    """Returns X by job and kind: the greatest z with which each job's rate is z times its `required` one.

    The remaining time maximises the sum of rates, each relative to the job's best.
    """
    z, first = solve_max_min(problem, required)
    best = np.maximum(problem.rates.max(axis=1, keepdims=True), _TINY)
    second = _solve_program(problem, np.append(-(problem.rates / best).ravel(), 0.0), required, fixed=z * (1 - _SLACK))
    return first if second is None else second[1]


def solve_max_min(problem: TimeFractionProblem, required: Sequence[float]) -> tuple[float, Floats]:
    """Returns the greatest z, and X."""
    objective = np.zeros(problem.rates.size + 1)
    objective[-1] = -1.0
    solution = _solve_program(problem, objective, required)
    # z = 0 is always feasible, so no answer means that the solver gave up.
    return solution if solution is not None else (0.0, np.zeros(problem.rates.shape))


def isolated_rates(problem: TimeFractionProblem) -> Floats:
    """Returns the rate of each job alone on 1/n of every kind."""
    jobs = max(len(problem.scales), 1)
    fractions = problem.devices / jobs / problem.scales[:, None]
    fractions /= np.maximum(fractions.sum(axis=1, keepdims=True), 1.0)
    rate: Floats = np.maximum((problem.rates * fractions).sum(axis=1), _TINY)
    return rate


def find_min_rho(
    problem: TimeFractionProblem, work_left: Sequence[float], elapsed: Sequence[float], isolated_s: Sequence[float]
) -> tuple[float, list[float]]:
    """Returns the smallest rho with which every job ends within rho times `isolated_s`, and the rates this requires."""
    remaining, elapsed_array, ideal = np.array(work_left), np.array(elapsed), np.array(isolated_s)

    def rates(rho: float) -> Floats:
        required: Floats = remaining / np.maximum(rho * ideal - elapsed_array, 1e-9)
        return required

    low = float((elapsed_array / ideal).max())
    high = 2 * low + 1.0
    while not _are_rates_feasible(problem, rates(high)) and high < 1e12:
        low, high = high, 4 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _are_rates_feasible(problem, rates(middle)) else (middle, high)
    return high, rates(high).tolist()


def _are_rates_feasible(problem: TimeFractionProblem, rates: Floats) -> bool:
    return solve_max_min(problem, rates.tolist())[0] >= 1.0 - _SLACK


def _solve_program(
    problem: TimeFractionProblem, objective: Floats, required: Sequence[float], fixed: float | None = None
) -> tuple[float, Floats] | None:
    """Returns z, and X that minimises `objective` over (X, z); z is free unless `fixed` is given."""
    jobs, kinds = problem.rates.shape
    best = np.maximum(problem.rates.max(axis=1), _TINY)
    required_share = np.maximum(np.array(required, float), _TINY) / best  # relative to its best rate, at z = 1
    scale = float(required_share.max())  # keeps the solver's z near 1
    row, kind = np.divmod(np.arange(jobs * kinds), kinds)
    variables, z_column = np.arange(jobs * kinds), np.full(jobs, jobs * kinds)
    # Rows: each job's time; the devices of each kind; required * z - rate <= 0.
    values = [np.ones(jobs * kinds), problem.scales[row], -problem.rates.ravel() / best[row], required_share / scale]
    rows = [row, jobs + kind, jobs + kinds + row, jobs + kinds + np.arange(jobs)]
    columns = [variables, variables, variables, z_column]
    table = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(2 * jobs + kinds, jobs * kinds + 1),
    )
    limits = np.concatenate([np.ones(jobs), problem.devices, np.zeros(jobs)])
    lower = np.append(np.zeros(jobs * kinds), 0.0 if fixed is None else fixed * scale)
    upper = np.append((problem.rates.ravel() > 0).astype(float), np.inf if fixed is None else fixed * scale)
    solution = linprog(objective, table.tocsr(), limits, bounds=np.stack([lower, upper], axis=1), method="highs")
    if solution.x is None:
        return None
    return float(solution.x[-1]) / scale, np.clip(solution.x[:-1].reshape(jobs, kinds), 0.0, 1.0)


POLICY = Gavel
