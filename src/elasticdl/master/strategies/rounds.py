"""Rounds: which workers train together, on which ranks, and which send the state to newcomers. Pure."""

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
    """Assigns a donor, which sends the state, to each newcomer, and another one if the transfer fails.

    A newcomer keeps its donor while rounds are planned again, so that its transfer continues. Once all possible donors
    have failed, the transfer is tried again with growing delays.
    """

    assigned: dict[WorkerId, WorkerId] = field(default_factory=dict)  # donors by newcomer, in rounds not yet entered
    failures: dict[WorkerId, dict[WorkerId, int]] = field(default_factory=dict)  # counts, by donor and newcomer

    def assign(self, newcomers: Sequence[WorkerId], holders: Sequence[WorkerId]) -> dict[WorkerId, WorkerId]:
        """A donor among `holders` for each newcomer: its own, otherwise one with few failures and few newcomers."""
        donors = {worker: self.assigned[worker] for worker in newcomers if self.assigned.get(worker) in holders}
        for newcomer in newcomers:
            if newcomer not in donors and holders:
                assigned = list(donors.values())
                donors[newcomer] = min(
                    holders, key=lambda donor: (*self._failures(donor, newcomer), assigned.count(donor))
                )
        return donors

    def record_failure(self, donor: WorkerId, newcomer: WorkerId) -> None:
        """`newcomer` got no state from `donor`."""
        by_newcomer = self.failures.setdefault(donor, {})
        by_newcomer[newcomer] = by_newcomer.get(newcomer, 0) + 1
        self.assigned.pop(newcomer, None)

    def retry_delay_s(self, newcomer: WorkerId, holders: Sequence[WorkerId]) -> float:
        """How long to wait before the next transfer to `newcomer`; 0 if a holder has not failed yet."""
        min_failures = min((self._failures(holder, newcomer)[0] for holder in holders), default=0)
        return backoff_delay(min_failures - 1, MIN_TRANSFER_DELAY_S, MAX_TRANSFER_DELAY_S) if min_failures else 0.0

    def record_entered(self, members: Sequence[WorkerId]) -> None:
        """These workers have entered a round: transfers to them succeeded, and only they can be donors now."""
        successful = {donor for newcomer, donor in self.assigned.items() if newcomer in members}
        self.assigned = {newcomer: donor for newcomer, donor in self.assigned.items() if newcomer not in members}
        remaining = {
            donor: {newcomer: count for newcomer, count in counts.items() if newcomer not in members}
            for donor, counts in self.failures.items()
            if donor in members and donor not in successful
        }
        self.failures = {donor: counts for donor, counts in remaining.items() if counts}

    def remove_worker(self, worker: WorkerId) -> None:
        """Forget a worker that is gone."""
        self.assigned.pop(worker, None)
        self.failures.pop(worker, None)
        for counts in self.failures.values():
            counts.pop(worker, None)

    def _failures(self, donor: WorkerId, newcomer: WorkerId) -> tuple[int, int]:
        """How often the donor failed for this newcomer, and for all."""
        counts = self.failures.get(donor, {})
        return counts.get(newcomer, 0), sum(counts.values())


MIN_REBALANCE_GAIN = 0.2
UNBALANCED_FOR_S = 10.0
REBALANCE_INTERVAL_S = 30.0
# When a job gives up because rounds fail one after another although all members seem alive: a network may be down for
# minutes, but a job that completes no step must not hold its machines forever.
FAILING_FOR_S, MAX_FAILED_ROUNDS = 300.0, 20
FAILED_REASON = "failed, although all its members seem alive"


class Round(NamedTuple):
    """A planned round, its members in rank order."""

    id: int
    members: tuple[RankAssignment, ...]
    is_forced: bool
    reason: str
    planned_at: float

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        return tuple(member.worker for member in self.members)


@dataclass(slots=True)
class RoundState:
    """The rounds of a job, and which workers hold the state."""

    newest: Round | None = None  # planned last
    superseded: list[Round] = field(
        default_factory=list
    )  # planned since `current`; members may still have voted for one
    current: Round | None = None  # entered last
    holders: list[WorkerId] = field(default_factory=list)  # workers that may hold the training state, in rank order
    failed_at: float | None = None  # when a member dropped the round that trains
    failed_on: list[WorkerId] = field(default_factory=list)  # the members that dropped it
    failure_reason: str = ""
    failed_in_a_row: int = 0  # rounds formed again since the last step that ended
    failing_since: float = 0.0
    stalls: int = 0  # rounds planned again since then because they made no progress, see stalls.py
    finished_scripts: list[WorkerId] = field(default_factory=list)  # workers whose script of the newest round succeeded
    halted_at: float | None = None  # when the scripts of the newest round were ended, until the next one is planned
    donors: DonorAssignment = field(default_factory=DonorAssignment)
    entry_gaps_s: dict[WorkerId, float] = field(default_factory=dict)  # of the current round, until it is logged

    @property
    def is_entered(self) -> bool:
        return self.newest is not None and self.current is not None and self.newest.id == self.current.id

    def find_pending(self, round_id: int) -> Round | None:
        """A planned round that is not known to be entered yet."""
        if self.newest is None or self.is_entered:
            return None
        return next((planned for planned in [*self.superseded, self.newest] if planned.id == round_id), None)


class StateHolder(NamedTuple):
    """What the choice of the next round needs to know about a holder of the state."""

    worker: WorkerId
    is_present: bool
    is_leaving: bool


class RoundChange(NamedTuple):
    """The next round, without ranks."""

    workers: tuple[WorkerId, ...]
    is_forced: bool
    reason: str


class RoundSituation(NamedTuple):
    """Everything that the choice of the next round depends on."""

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
    delayed: Collection[WorkerId] = ()  # newcomers that must wait for their next state transfer


def choose_round(situation: RoundSituation) -> RoundChange | None:
    """The next round, or None if the newest one is still right or no better one is possible yet."""
    present = [holder for holder in situation.holders if holder.is_present]
    if not present:
        return _choose_start(situation)
    gone = [holder.worker for holder in situation.holders if not holder.is_present]
    staying = [holder.worker for holder in present if not holder.is_leaving]
    is_stuck = situation.failed_for_s is not None and situation.failed_for_s >= situation.regroup_s
    if gone or is_stuck:
        reason = f"without {', '.join(gone)}" if gone else FAILED_REASON
        # Leaving workers hold the state, too: they are members if there are no others.
        return _choose_forced(situation, staying or [holder.worker for holder in present], reason)
    if situation.failed_for_s is not None or situation.newest is None:
        return None
    if situation.newest.is_forced and not situation.is_entered:
        return None
    joining = [newcomer for newcomer in situation.newcomers if newcomer not in situation.delayed]
    members = staying + joining[: max(0, situation.max_workers - len(staying))]
    if len(members) < max(1, situation.min_workers) or set(members) == set(situation.newest.workers):
        return None
    return RoundChange(tuple(members), False, _describe_change(situation.newest.workers, members))


def _choose_start(situation: RoundSituation) -> RoundChange | None:
    """No worker holds the state: start with the workers that are ready, from a checkpoint or from the beginning."""
    ready = len(situation.newcomers)
    if ready < max(1, situation.min_workers):
        return None
    if (
        ready < min(situation.expected, situation.max_workers)
        and situation.newcomers_waited_s < situation.start_timeout_s
    ):
        return None
    reason = (
        "start of the job" if situation.newest is None else "all members were lost; resumes from the newest checkpoint"
    )
    return RoundChange(tuple(situation.newcomers[: situation.max_workers]), True, reason)


def _choose_forced(situation: RoundSituation, members: list[WorkerId], reason: str) -> RoundChange | None:
    if len(members) < situation.min_workers:
        members = members + list(situation.newcomers[: situation.max_workers - len(members)])
    return RoundChange(tuple(members), True, reason) if len(members) >= situation.min_workers else None


def _describe_change(before: Sequence[WorkerId], after: Sequence[WorkerId]) -> str:
    joining = [worker for worker in after if worker not in before]
    leaving = [worker for worker in before if worker not in after]
    parts = [f"{', '.join(joining)} joins"] if joining else []
    parts += [f"{', '.join(leaving)} leaves"] if leaving else []
    return "; ".join(parts)


def split_ranks(logical_ranks: int, compute_s: Sequence[float | None]) -> list[int]:
    """How many logical ranks each worker computes so that the slowest finishes soonest; at least one each.

    `compute_s` is the time of one logical rank on each worker; None: not known, assumed to be average.
    """
    measured = [seconds for seconds in compute_s if seconds]
    average = sum(measured) / len(measured) if measured else 1.0
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
    """The members of a round in rank order, each with contiguous logical ranks; `donors` are those of newcomers."""
    assignments, first = [], 0
    for worker, count in zip(workers, counts, strict=True):
        assignments.append(RankAssignment(worker, first, count, donors.get(worker, "")))
        first += count
    return tuple(assignments)


def is_unbalanced(counts: Sequence[int], compute_s: Sequence[float | None]) -> bool:
    """Whether another split would make a step shorter by more than `MIN_REBALANCE_GAIN`."""
    measured = [seconds for seconds in compute_s if seconds]
    if len(measured) < len(counts):
        return False
    current_s = max(count * seconds for count, seconds in zip(counts, measured, strict=True))
    balanced_counts = split_ranks(sum(counts), measured)
    balanced_s = max(count * seconds for count, seconds in zip(balanced_counts, measured, strict=True))
    return balanced_s < (1 - MIN_REBALANCE_GAIN) * current_s
