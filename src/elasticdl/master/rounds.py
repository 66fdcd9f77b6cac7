"""Rounds: who trains together, in which rank, on which logical ranks. Pure decisions, each with its reason."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from elasticdl.master.donors import Donors
from elasticdl.master.events import Seat
from elasticdl.spec.ids import WorkerId

REBALANCE_GAIN = 0.2
REBALANCE_SUSTAINED_S = 10.0
REBALANCE_EVERY_S = 30.0
# Rounds that break one after another while all their members seem alive: a network may be away for so long, but a job
# that cannot do a step must not hold its machines for ever.
FRUITLESS_S, FRUITLESS_MOST = 300.0, 20
BROKEN = "broken, though all its members seem alive"


class Round(NamedTuple):
    id: int
    seats: tuple[Seat, ...]
    forced: bool
    reason: str
    planned_at: float

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        return tuple(seat.worker for seat in self.seats)


@dataclass(slots=True)
class Rounds:
    newest: Round | None = None  # planned last
    superseded: list[Round] = field(default_factory=list)  # planned since `current`; all may have voted for one still
    current: Round | None = None  # entered last
    holders: list[WorkerId] = field(default_factory=list)  # who may hold the training state, in rank order
    broken_at: float | None = None  # someone dropped the round that trains
    broken_by: list[WorkerId] = field(default_factory=list)
    broken_why: str = ""
    fruitless: int = 0  # rounds formed anew since the last step that ended
    fruitless_since: float = 0.0
    stalls: int = 0  # rounds planned anew since then because nothing went on, see stalls.py
    done: list[WorkerId] = field(default_factory=list)  # whose script of the newest round ended well
    halted_at: float | None = None  # when the scripts of the newest round were ended, until the next one is planned
    donors: Donors = field(default_factory=Donors)
    gaps: dict[WorkerId, float] = field(default_factory=dict)  # of the current round, until it is logged

    @property
    def is_entered(self) -> bool:
        return self.newest is not None and self.current is not None and self.newest.id == self.current.id

    def find(self, round_id: int) -> Round | None:
        """A round that is not entered yet as far as is known, and may be."""
        if self.newest is None or self.is_entered:
            return None
        return next((known for known in [*self.superseded, self.newest] if known.id == round_id), None)


class Standing(NamedTuple):
    """A holder of the state, as far as the next round is concerned."""

    worker: WorkerId
    is_here: bool
    is_leaving: bool


class Change(NamedTuple):
    workers: tuple[WorkerId, ...]
    forced: bool
    reason: str


class Outlook(NamedTuple):
    """All that the choice of the next round depends on."""

    newest: Round | None
    is_entered: bool
    holders: Sequence[Standing]
    newcomers: Sequence[WorkerId]  # the oldest first
    newcomers_waited_s: float  # since the last of them became ready
    expected: int  # workers that are launched, starting or ready
    least: int
    most: int
    broken_for_s: float | None
    regroup_s: float
    start_wait_s: float
    pausing: Collection[WorkerId] = ()  # newcomers that nobody hands the state over to for a while


def choose(outlook: Outlook) -> Change | None:
    """The next round, or None while the newest one is right or nothing better can be had yet."""
    here = [holder for holder in outlook.holders if holder.is_here]
    if not here:
        return _start(outlook)
    gone = [holder.worker for holder in outlook.holders if not holder.is_here]
    staying = [holder.worker for holder in here if not holder.is_leaving]
    is_stuck = outlook.broken_for_s is not None and outlook.broken_for_s >= outlook.regroup_s
    if gone or is_stuck:
        reason = f"without {', '.join(gone)}" if gone else BROKEN
        # Those that leave hold the state too: they carry it on where nobody else could.
        return _force(outlook, staying or [holder.worker for holder in here], reason)
    if outlook.broken_for_s is not None or outlook.newest is None:
        return None
    if outlook.newest.forced and not outlook.is_entered:
        return None
    joining = [newcomer for newcomer in outlook.newcomers if newcomer not in outlook.pausing]
    wanted = staying + joining[: max(0, outlook.most - len(staying))]
    if len(wanted) < max(1, outlook.least) or set(wanted) == set(outlook.newest.workers):
        return None
    return Change(tuple(wanted), False, _difference(outlook.newest.workers, wanted))


def _start(outlook: Outlook) -> Change | None:
    """Nobody holds the state: begin with those that are ready, from a checkpoint or from nothing."""
    ready = len(outlook.newcomers)
    if ready < max(1, outlook.least):
        return None
    if ready < min(outlook.expected, outlook.most) and outlook.newcomers_waited_s < outlook.start_wait_s:
        return None
    reason = "start of the job" if outlook.newest is None else "all members were lost; from the newest checkpoint"
    return Change(tuple(outlook.newcomers[: outlook.most]), True, reason)


def _force(outlook: Outlook, members: list[WorkerId], reason: str) -> Change | None:
    if len(members) < outlook.least:
        members = members + list(outlook.newcomers[: outlook.most - len(members)])
    return Change(tuple(members), True, reason) if len(members) >= outlook.least else None


def _difference(before: Sequence[WorkerId], after: Sequence[WorkerId]) -> str:
    joins = [worker for worker in after if worker not in before]
    leaves = [worker for worker in before if worker not in after]
    parts = [f"{', '.join(joins)} joins"] if joins else []
    parts += [f"{', '.join(leaves)} leaves"] if leaves else []
    return "; ".join(parts)


def split(logical_ranks: int, compute_s: Sequence[float | None]) -> list[int]:
    """How many logical ranks each worker takes so that the slowest is done soonest; at least one each.

    `compute_s` is what one logical rank takes on each worker; None: not known, taken for average.
    """
    known = [seconds for seconds in compute_s if seconds]
    average = sum(known) / len(known) if known else 1.0
    cost = [seconds or average for seconds in compute_s]
    assert 0 < len(cost) <= logical_ranks, f"{logical_ranks} logical ranks cannot serve {len(cost)} workers"
    counts = [1] * len(cost)
    queue = [(2 * seconds, index) for index, seconds in enumerate(cost)]
    heapq.heapify(queue)
    for _ in range(logical_ranks - len(cost)):
        _, index = heapq.heappop(queue)
        counts[index] += 1
        heapq.heappush(queue, ((counts[index] + 1) * cost[index], index))
    return counts


def seat(workers: Sequence[WorkerId], counts: Sequence[int], donors: Mapping[WorkerId, WorkerId]) -> tuple[Seat, ...]:
    """Seats in rank order on contiguous logical ranks; `donors` are those of newcomers."""
    seats, first = [], 0
    for worker, count in zip(workers, counts, strict=True):
        seats.append(Seat(worker, first, count, donors.get(worker, "")))
        first += count
    return tuple(seats)


def is_unbalanced(counts: Sequence[int], compute_s: Sequence[float | None]) -> bool:
    """Whether another split would make a step shorter by more than a fifth."""
    known = [seconds for seconds in compute_s if seconds]
    if len(known) < len(counts):
        return False
    now_s = max(count * seconds for count, seconds in zip(counts, known, strict=True))
    then_s = max(count * seconds for count, seconds in zip(split(sum(counts), known), known, strict=True))
    return then_s < (1 - REBALANCE_GAIN) * now_s
