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

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from elasticdl.errors import SpecError
from elasticdl.scheduler.arrange import arrange
from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.models.time_fractions import Needs, fractions, isolated, least_rho
from elasticdl.scheduler.placement import keep
from elasticdl.scheduler.plan import Allocation, Plan
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.settling import in_order
from elasticdl.scheduler.snapshot import Job, Snapshot, Workers
from elasticdl.scheduler.speed import Speeds

_NO_TIME = 1e-6  # of a fraction
Kind = str | None
"""None: several, or whichever was free."""

_EARLY_S = 1.0  # a round that ends so soon is over: timers are not exact


@dataclass(frozen=True)
class Memory:
    at: float  # of the last decision
    round_at: float
    running: Mapping[str, Kind]  # that each job has now
    received: Mapping[str, Mapping[Kind, float]]  # seconds, by job and kind
    known_s: Mapping[str, float]  # how long each job is there


_NOTHING = Memory(0.0, float("-inf"), {}, {}, {})


@dataclass(frozen=True)
class Gavel:
    name: str = "gavel"
    objective: str = "max-min"  # or "makespan", "fairness"
    round_s: float = 360.0
    is_rigid: bool = True
    interval_s: float = 360.0
    asks_at_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def __post_init__(self) -> None:
        if self.objective not in _OBJECTIVES:
            raise SpecError(f"--policy gavel: objective is one of {list(_OBJECTIVES)}, received {self.objective!r}")

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        past = _remembered(snapshot, memory or _NOTHING)
        queue = in_order(job.rigid() for job in snapshot.jobs)
        is_new_round = snapshot.now >= past.round_at + self.round_s - _EARLY_S
        times = self._fractions(snapshot, queue)
        kinds = _chosen(snapshot, queue, times, past, {} if is_new_round else past.running)
        given = _placed(snapshot, queue, kinds)
        running = {job.name: kinds[job.name][0] if job.name in kinds else None for job in queue if given[job.name]}
        round_at = snapshot.now if is_new_round else past.round_at
        answers = {job.name: _answer(job, given[job.name], times.get(job.name, {})) for job in queue}
        return Decision(Plan(answers), replace(past, round_at=round_at, running=running))

    def _fractions(self, snapshot: Snapshot, queue: list[Job]) -> dict[str, dict[str, float]]:
        """X by job and kind. Jobs that no kind alone has room for are not in it."""
        speeds = Speeds(snapshot)
        wholes = {job.name: _whole_on(speeds, job) for job in queue}
        able = [job for job in queue if any(wholes[job.name].values())]
        needs = Needs.of(
            devices=[speeds.devices[kind] for kind in speeds.kinds],
            scales=[job.wish * job.devices for job in able],
            rates=[[wholes[job.name].get(kind, 0.0) for kind in speeds.kinds] for job in able],
        )
        if not able:
            return {}
        found = fractions(needs, _OBJECTIVES[self.objective](snapshot, speeds, able, needs))
        return {
            job.name: dict(zip(speeds.kinds, row, strict=True)) for job, row in zip(able, found.tolist(), strict=True)
        }


def _max_min(snapshot: Snapshot, speeds: Speeds, jobs: list[Job], needs: Needs) -> list[float]:
    equal = needs.rates @ needs.devices / max(needs.devices.sum(), 1.0)
    return [
        max(job.weight, _NO_TIME) * float(rate) / (job.wish * job.devices)
        for job, rate in zip(jobs, equal, strict=True)
    ]


def _makespan(snapshot: Snapshot, speeds: Speeds, jobs: list[Job], needs: Needs) -> list[float]:
    return [max(speeds.left(job), _NO_TIME) for job in jobs]


def _fairness(snapshot: Snapshot, speeds: Speeds, jobs: list[Job], needs: Needs) -> list[float]:
    left = [max(speeds.left(job), _NO_TIME) for job in jobs]
    elapsed = [max(snapshot.now - job.submitted_at, 0.0) for job in jobs]
    alone = [
        (job.work_done + work) / rate for job, work, rate in zip(jobs, left, isolated(needs).tolist(), strict=True)
    ]
    return least_rho(needs, left, elapsed, alone)[1]


_OBJECTIVES: dict[str, Callable[[Snapshot, Speeds, list[Job], Needs], list[float]]] = {
    "max-min": _max_min,
    "makespan": _makespan,
    "fairness": _fairness,
}


def _whole_on(speeds: Speeds, job: Job) -> dict[str, float]:
    """Its rate with all workers, on each kind that has room for them."""
    if job.demands:
        return {}
    fits = [kind for kind in speeds.kinds_of(job) if speeds.devices[kind] >= job.wish * job.devices]
    return {kind: speeds.one(job, job.wish, kind) for kind in fits}


def _remembered(snapshot: Snapshot, past: Memory) -> Memory:
    """With the time since the last decision counted, and without jobs that are over."""
    passed = max(snapshot.now - past.at, 0.0)
    received: dict[str, Mapping[Kind, float]] = {}
    known: dict[str, float] = {}
    for job in snapshot.jobs:
        seconds = dict(past.received.get(job.name, {}))
        if job.name in past.running:
            kind = past.running[job.name]
            seconds[kind] = seconds.get(kind, 0.0) + passed
        received[job.name] = seconds
        known[job.name] = past.known_s[job.name] + passed if job.name in past.known_s else 0.0
    running = {name: kind for name, kind in past.running.items() if name in received}
    return Memory(snapshot.now, past.round_at, running, received, known)


def _chosen(
    snapshot: Snapshot,
    queue: list[Job],
    times: Mapping[str, Mapping[str, float]],
    past: Memory,
    running: Mapping[str, Kind],
) -> dict[str, tuple[Kind, Workers]]:
    """Who runs this round, on which kind; and where all of them fit together. `running` go on in any case."""
    room = Room(snapshot.nodes)
    found: dict[str, tuple[Kind, Workers]] = {}
    go_on = [(job, running[job.name]) for job in queue if job.name in running]
    for job, kind in [*go_on, *_by_priority(queue, times, past)]:
        if job.name in found:
            continue
        workers = keep(
            room, _only(job, kind) if job.name in running else replace(_only(job, kind), workers={}), job.wish
        )
        if workers is not None:
            room.take(job, workers)
            found[job.name] = kind, workers
    return found


def _by_priority(
    queue: list[Job], times: Mapping[str, Mapping[str, float]], past: Memory
) -> Iterator[tuple[Job, Kind]]:
    """Pairs of job and kind, the greatest X over the fraction received first; at last all, the oldest first."""
    pairs = []
    for job in queue:
        parts: Iterable[tuple[Kind, float]] = [(None, 1.0 / len(queue))]
        for kind, part in times[job.name].items() if job.name in times else parts:
            had = past.received[job.name].get(kind, 0.0) / max(past.known_s[job.name], _EARLY_S)
            if part > _NO_TIME:
                pairs.append((-part / max(had, _NO_TIME), -part, job.submitted_at, job.name, kind or "", kind, job))
    for *_, kind, job in sorted(pairs, key=lambda pair: pair[:5]):
        yield job, kind
    for job in queue:
        yield from ((job, kind) for kind in times.get(job.name, {}) if not job.kinds or kind in job.kinds)


def _placed(snapshot: Snapshot, queue: list[Job], kinds: Mapping[str, tuple[Kind, Workers]]) -> dict[str, Workers]:
    """Lease renewal: who runs on, and on the same kind, stays where it is."""
    wanted = [(_only(job, kinds[job.name][0]), job.wish) if job.name in kinds else (job, 0) for job in queue]
    return arrange(snapshot.nodes, wanted, {name: workers for name, (_, workers) in kinds.items()})


def _only(job: Job, kind: Kind) -> Job:
    return job if kind is None else replace(job, kinds=(kind,))


def _answer(job: Job, workers: Workers, times: Mapping[str, float]) -> Allocation:
    parts = [
        f"{part:.0%} of its time{' on ' + kind if kind else ''}" for kind, part in times.items() if part > _NO_TIME
    ]
    due = " and ".join(parts) or "what others leave"
    if workers:
        return Allocation(workers, f"all of its {job.wish} workers this round: {due} is its due")
    return Allocation({}, f"waits this round for its {job.wish} workers: {due} is its due")


POLICY = Gavel
