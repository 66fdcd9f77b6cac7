"""Who hands the state over to whom, and what follows when a hand-over fails. Pure.

A newcomer keeps its donor from round to round, so that a hand-over goes on while rounds are planned anew. One that got
no state asks another worker. Only when all have failed it is tried again with growing pauses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from elasticdl.spec.ids import WorkerId

FIRST_PAUSE_S, MOST_PAUSE_S = 1.0, 30.0


@dataclass(slots=True)
class Donors:
    chosen: dict[WorkerId, WorkerId] = field(default_factory=dict)  # of each newcomer to a round not yet entered
    failures: dict[WorkerId, dict[WorkerId, int]] = field(default_factory=dict)  # of each donor, by newcomer

    def deal(self, newcomers: Sequence[WorkerId], holders: Sequence[WorkerId]) -> dict[WorkerId, WorkerId]:
        """A donor among `holders` for each newcomer: the one it has, else one without failures and with least to do."""
        dealt = {worker: self.chosen[worker] for worker in newcomers if self.chosen.get(worker) in holders}
        for newcomer in newcomers:
            if newcomer not in dealt and holders:
                busy = list(dealt.values())
                dealt[newcomer] = min(holders, key=lambda donor: (*self._failures(donor, newcomer), busy.count(donor)))
        return dealt

    def fail(self, donor: WorkerId, newcomer: WorkerId) -> None:
        """`newcomer` got no state from `donor`."""
        by_newcomer = self.failures.setdefault(donor, {})
        by_newcomer[newcomer] = by_newcomer.get(newcomer, 0) + 1
        self.chosen.pop(newcomer, None)

    def pause_s(self, newcomer: WorkerId, holders: Sequence[WorkerId]) -> float:
        """How long to wait before the next hand-over to `newcomer`; 0 where someone has not been asked yet."""
        fewest = min((self._failures(holder, newcomer)[0] for holder in holders), default=0)
        return min(MOST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(fewest - 1, 16)) if fewest else 0.0

    def settle(self, members: Sequence[WorkerId]) -> None:
        """These have entered a round: hand-overs to them worked, and whoever is not among them hands over nothing."""
        worked = {donor for newcomer, donor in self.chosen.items() if newcomer in members}
        self.chosen = {newcomer: donor for newcomer, donor in self.chosen.items() if newcomer not in members}
        left = {
            donor: {newcomer: count for newcomer, count in counts.items() if newcomer not in members}
            for donor, counts in self.failures.items()
            if donor in members and donor not in worked
        }
        self.failures = {donor: counts for donor, counts in left.items() if counts}

    def forget(self, worker: WorkerId) -> None:
        """It is gone."""
        self.chosen.pop(worker, None)
        self.failures.pop(worker, None)
        for counts in self.failures.values():
            counts.pop(worker, None)

    def _failures(self, donor: WorkerId, newcomer: WorkerId) -> tuple[int, int]:
        """How often it failed this newcomer, and all."""
        counts = self.failures.get(donor, {})
        return counts.get(newcomer, 0), sum(counts.values())
