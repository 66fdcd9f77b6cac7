"""Rounds: who trains together, on which ranks, and who transfers the state to newcomers. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from elasticdl.master.machine.events import RankAssignment
from elasticdl.retry import backoff_delay
from elasticdl.spec.ids import WorkerId

MIN_TRANSFER_DELAY_S, MAX_TRANSFER_DELAY_S = 1.0, 30.0


@dataclass(slots=True)
class DonorAssignment:
    """Which worker transfers the state to which newcomer, and what follows when a transfer fails.

    A newcomer keeps its donor from round to round, so that a transfer goes on while rounds are planned anew. One that
    got no state asks another worker. Only when all have failed is it tried again, with growing delays.
    """

    chosen: dict[WorkerId, WorkerId] = field(default_factory=dict)  # of each newcomer to a round not yet entered
    failures: dict[WorkerId, dict[WorkerId, int]] = field(default_factory=dict)  # of each donor, by newcomer

    def assign(self, newcomers: Sequence[WorkerId], holders: Sequence[WorkerId]) -> dict[WorkerId, WorkerId]:
        """A donor among `holders` for each newcomer: the one it has, else one without failures and with least to do."""
        dealt = {worker: self.chosen[worker] for worker in newcomers if self.chosen.get(worker) in holders}
        for newcomer in newcomers:
            if newcomer not in dealt and holders:
                busy = list(dealt.values())
                dealt[newcomer] = min(holders, key=lambda donor: (*self._failures(donor, newcomer), busy.count(donor)))
        return dealt

    def record_failure(self, donor: WorkerId, newcomer: WorkerId) -> None:
        """`newcomer` got no state from `donor`."""
        by_newcomer = self.failures.setdefault(donor, {})
        by_newcomer[newcomer] = by_newcomer.get(newcomer, 0) + 1
        self.chosen.pop(newcomer, None)

    def retry_delay_s(self, newcomer: WorkerId, holders: Sequence[WorkerId]) -> float:
        """How long to wait before the next hand-over to `newcomer`; 0 where someone has not been asked yet."""
        fewest = min((self._failures(holder, newcomer)[0] for holder in holders), default=0)
        return backoff_delay(fewest - 1, MIN_TRANSFER_DELAY_S, MAX_TRANSFER_DELAY_S) if fewest else 0.0

    def record_entered(self, members: Sequence[WorkerId]) -> None:
        """These have entered a round: hand-overs to them worked, and whoever is not among them hands over nothing."""
        worked = {donor for newcomer, donor in self.chosen.items() if newcomer in members}
        self.chosen = {newcomer: donor for newcomer, donor in self.chosen.items() if newcomer not in members}
        left = {
            donor: {newcomer: count for newcomer, count in counts.items() if newcomer not in members}
            for donor, counts in self.failures.items()
            if donor in members and donor not in worked
        }
        self.failures = {donor: counts for donor, counts in left.items() if counts}

    def remove_worker(self, worker: WorkerId) -> None:
        """It is gone."""
        self.chosen.pop(worker, None)
        self.failures.pop(worker, None)
        for counts in self.failures.values():
            counts.pop(worker, None)

    def _failures(self, donor: WorkerId, newcomer: WorkerId) -> tuple[int, int]:
        """How often it failed this newcomer, and all."""
        counts = self.failures.get(donor, {})
        return counts.get(newcomer, 0), sum(counts.values())


MIN_REBALANCE_GAIN = 0.2
UNBALANCED_FOR_S = 10.0
REBALANCE_INTERVAL_S = 30.0
# Rounds that break one after another while all their members seem alive: a network may be away for so long, but a job
# that cannot do a step must not hold its machines for ever.
FAILING_FOR_S, MAX_FAILED_ROUNDS = 300.0, 20
FAILED_REASON = "broken, though all its members seem alive"


class Round(NamedTuple):
    id: int
    members: tuple[RankAssignment, ...]
    is_forced: bool
    reason: str
    planned_at: float

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        return tuple(seat.worker for seat in self.members)


@dataclass(slots=True)
class RoundState:
    newest: Round | None = None  # planned last
    superseded: list[Round] = field(default_factory=list)  # planned since `current`; all may have voted for one still
    current: Round | None = None  # entered last
    holders: list[WorkerId] = field(default_factory=list)  # who may hold the training state, in rank order
    failed_at: float | None = None  # someone dropped the round that trains
    failed_on: list[WorkerId] = field(default_factory=list)
    failure_reason: str = ""
    failed_in_a_row: int = 0  # rounds formed anew since the last step that ended
    failing_since: float = 0.0
    stalls: int = 0  # rounds planned anew since then because nothing went on, see stalls.py
    finished_scripts: list[WorkerId] = field(default_factory=list)  # whose script of the newest round ended well
    halted_at: float | None = None  # when the scripts of the newest round were ended, until the next one is planned
    donors: DonorAssignment = field(default_factory=DonorAssignment)
    entry_gaps_s: dict[WorkerId, float] = field(default_factory=dict)  # of the current round, until it is logged

    @property
    def is_entered(self) -> bool:
        return self.newest is not None and self.current is not None and self.newest.id == self.current.id

    def find_pending(self, round_id: int) -> Round | None:
        """A round that is not entered yet as far as is known, and may be."""
        if self.newest is None or self.is_entered:
            return None
        return next((known for known in [*self.superseded, self.newest] if known.id == round_id), None)


class StateHolder(NamedTuple):
    """A holder of the state, as far as the next round is concerned."""

    worker: WorkerId
    is_present: bool
    is_leaving: bool


class RoundChange(NamedTuple):
    workers: tuple[WorkerId, ...]
    is_forced: bool
    reason: str


class RoundSituation(NamedTuple):
    """All that the choice of the next round depends on."""

    newest: Round | None
    is_entered: bool
    holders: Sequence[StateHolder]
    newcomers: Sequence[WorkerId]  # the oldest first
    newcomers_waited_s: float  # since the last of them became ready
    expected: int  # workers that are launched, starting or ready
    min_workers: int
    max_workers: int
    failed_for_s: float | None
    regroup_s: float
    start_timeout_s: float
    pausing: Collection[WorkerId] = ()  # newcomers that nobody hands the state over to for a while


def choose_round(outlook: RoundSituation) -> RoundChange | None:
    """The next round, or None while the newest one is right or nothing better can be had yet."""
    here = [holder for holder in outlook.holders if holder.is_present]
    if not here:
        return _choose_start(outlook)
    gone = [holder.worker for holder in outlook.holders if not holder.is_present]
    staying = [holder.worker for holder in here if not holder.is_leaving]
    is_stuck = outlook.failed_for_s is not None and outlook.failed_for_s >= outlook.regroup_s
    if gone or is_stuck:
        reason = f"without {', '.join(gone)}" if gone else FAILED_REASON
        # Those that leave hold the state too: they carry it on where nobody else could.
        return _choose_forced(outlook, staying or [holder.worker for holder in here], reason)
    if outlook.failed_for_s is not None or outlook.newest is None:
        return None
    if outlook.newest.is_forced and not outlook.is_entered:
        return None
    joining = [newcomer for newcomer in outlook.newcomers if newcomer not in outlook.pausing]
    wanted = staying + joining[: max(0, outlook.max_workers - len(staying))]
    if len(wanted) < max(1, outlook.min_workers) or set(wanted) == set(outlook.newest.workers):
        return None
    return RoundChange(tuple(wanted), False, _describe_change(outlook.newest.workers, wanted))


def _choose_start(outlook: RoundSituation) -> RoundChange | None:
    """Nobody holds the state: begin with those that are ready, from a checkpoint or from nothing."""
    ready = len(outlook.newcomers)
    if ready < max(1, outlook.min_workers):
        return None
    if ready < min(outlook.expected, outlook.max_workers) and outlook.newcomers_waited_s < outlook.start_timeout_s:
        return None
    reason = "start of the job" if outlook.newest is None else "all members were lost; from the newest checkpoint"
    return RoundChange(tuple(outlook.newcomers[: outlook.max_workers]), True, reason)


def _choose_forced(outlook: RoundSituation, members: list[WorkerId], reason: str) -> RoundChange | None:
    if len(members) < outlook.min_workers:
        members = members + list(outlook.newcomers[: outlook.max_workers - len(members)])
    return RoundChange(tuple(members), True, reason) if len(members) >= outlook.min_workers else None


def _describe_change(before: Sequence[WorkerId], after: Sequence[WorkerId]) -> str:
    joins = [worker for worker in after if worker not in before]
    leaves = [worker for worker in before if worker not in after]
    parts = [f"{', '.join(joins)} joins"] if joins else []
    parts += [f"{', '.join(leaves)} leaves"] if leaves else []
    return "; ".join(parts)


def split_ranks(logical_ranks: int, compute_s: Sequence[float | None]) -> list[int]:
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


def assign_ranks(
    workers: Sequence[WorkerId], counts: Sequence[int], donors: Mapping[WorkerId, WorkerId]
) -> tuple[RankAssignment, ...]:
    """Seats in rank order on contiguous logical ranks; `donors` are those of newcomers."""
    seats, first = [], 0
    for worker, count in zip(workers, counts, strict=True):
        seats.append(RankAssignment(worker, first, count, donors.get(worker, "")))
        first += count
    return tuple(seats)


def is_unbalanced(counts: Sequence[int], compute_s: Sequence[float | None]) -> bool:
    """Whether another split would make a step shorter by more than a fifth."""
    known = [seconds for seconds in compute_s if seconds]
    if len(known) < len(counts):
        return False
    now_s = max(count * seconds for count, seconds in zip(counts, known, strict=True))
    then_s = max(count * seconds for count, seconds in zip(split_ranks(sum(counts), known), known, strict=True))
    return then_s < (1 - MIN_REBALANCE_GAIN) * now_s
