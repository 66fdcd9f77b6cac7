"""A worker's membership in rounds: groups are built in the background and entered between two steps."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elasticdl.collective.group import Group
from elasticdl.collective.mesh import RoundMember
from elasticdl.collective.tree import RankRange
from elasticdl.errors import RoundBroken
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.vital import VitalThread

_log = logging.getLogger(__name__)

# A member that died while a round was built is noticed, and another round planned, well within this.
_REPLAN_TIMEOUT_S = 3.0
_ORPHAN_CHECK_S = 5.0

BuildGroup = Callable[[int, int, Sequence[RoundMember]], Group]  # round, own rank, all members by rank


class EnteredRound(NamedTuple):
    """A worker's place in an entered round."""

    id: int
    group: Group
    workers: tuple[str, ...]  # in rank order
    shares: tuple[RankRange, ...]

    @property
    def rank(self) -> int:
        return self.group.rank

    @property
    def share(self) -> RankRange:
        return self.shares[self.rank]


@dataclass(slots=True)
class _RoundBuild:
    """A round whose group is being built, is built, or could not be built."""

    message: pb.Round
    group: Group | None = None
    failure: str = ""
    failed_at: float = 0.0


class RoundMembership:
    """All rounds that this worker knows. Only the training thread calls the methods of the second section."""

    def __init__(self, worker: str, build: BuildGroup) -> None:
        self._worker = worker
        self._build = build
        self._changed = threading.Condition()
        self._preparations: dict[int, _RoundBuild] = {}
        self._newest: pb.Round | None = None
        self._dropped = 0  # no round up to this one will be entered any more
        self._interrupted = ""
        self._donor_address = ""  # of the donor that this newcomer follows
        self._end_following: Callable[[], None] = _do_nothing
        self.current: EnteredRound | None = None

    # ---- from the session's thread

    def add_planned(self, message: pb.Round) -> None:
        """The master planned a round."""
        with self._changed:
            current = self.current.id if self.current else 0
            if message.id <= max(current, self._newest.id if self._newest else 0):
                return  # repeated after a reconnect
            self._newest = message
            preparation = _RoundBuild(message)
            self._preparations[message.id] = preparation
            if message.forced:
                self._abort_older(message.id)
            elif self.find_donor(message)[1] != self._donor_address:
                self._end_following()
            self._changed.notify_all()
        if _find_rank(message, self._worker) is not None:
            name = f"build-round-{message.id}"
            VitalThread(self._build_group, args=(preparation,), name=name).start()

    def interrupt(self, reason: str) -> None:
        """Wake the training thread wherever it waits: the worker must end, or was expelled."""
        with self._changed:
            self._interrupted = reason
            self._abort_older(1 << 62)
            self._changed.notify_all()

    def wake(self) -> None:
        """If the training thread waits for a round or for the state, let it check again whether it is dismissed."""
        with self._changed:
            self._end_following()
            self._changed.notify_all()

    def resume(self) -> None:
        """The training thread has seen the interruption."""
        with self._changed:
            self._interrupted = ""

    # ---- from the training thread

    def planned_round(self) -> pb.Round | None:
        """The newest round to be entered by vote, if it is not entered yet."""
        newest, current = self._newest, self.current
        if newest is None or newest.forced or (current and newest.id <= current.id):
            return None
        return newest

    def prepared_round_id(self) -> int:
        """The round this worker can vote for: the newest planned one, once its group is built; 0 for none.

        Raises RoundBroken if its group could not be built and no other round was planned instead.
        """
        message = self.planned_round()
        if message is None:
            return 0
        if _find_rank(message, self._worker) is None:
            return message.id  # leaving: there is no group to build
        preparation = self._preparations[message.id]
        if preparation.failure and time.monotonic() - preparation.failed_at > _REPLAN_TIMEOUT_S:
            raise RoundBroken(preparation.failure)
        return message.id if preparation.group is not None else 0

    def enter(self, round_id: int) -> EnteredRound | None:
        """Enter a prepared round; None if this worker is no member of it: it has left."""
        with self._changed:
            while True:
                preparation = self._preparations[round_id]
                if _find_rank(preparation.message, self._worker) is None:
                    self._leave_current()
                    return None
                if self._newest is not None and self._newest.forced and self._newest.id > round_id:
                    raise RoundBroken(f"round {round_id} was replaced by round {self._newest.id}")
                if preparation.failure or self._interrupted:
                    raise RoundBroken(preparation.failure or self._interrupted)
                if preparation.group is not None:
                    return self._use_group(preparation, preparation.group)
                self._changed.wait()

    def wait_for_round(self, *, holds_state: bool, is_dismissed: Callable[[], bool]) -> pb.Round:
        """Wait for the next round, after `drop` or at the start: a forced one, or one with a donor of the state.

        Raises RoundBroken if interrupted, or if there is no round to wait for any more.
        """
        assert self.current is None
        with self._changed:
            while True:
                if self._interrupted:
                    raise RoundBroken(self._interrupted)
                newest = self._newest
                is_mine = (
                    newest is not None and newest.id > self._dropped and _find_rank(newest, self._worker) is not None
                )
                if (
                    newest is not None
                    and is_mine
                    and (newest.forced or (not holds_state and self.find_donor(newest)[0]))
                ):
                    return newest
                if is_dismissed():
                    raise RoundBroken("dismissed")
                self._changed.wait(_ORPHAN_CHECK_S)

    def drop(self, round_id: int) -> None:
        """Drop all rounds up to this one, which broke or could not be entered."""
        with self._changed:
            self._dropped = max(self._dropped, round_id)
            self._leave_current()
            self._discard_builds(round_id)

    def close(self) -> None:
        with self._changed:
            self._leave_current()
            self._discard_builds(1 << 62)

    def find_donor(self, message: pb.Round) -> tuple[str, str]:
        """The donor of the state to this worker, and its address; "" if this worker is no newcomer."""
        return next(((m.donor, m.donor_address) for m in message.members if m.worker == self._worker), ("", ""))

    def follow_donor(self, donor: str, end: Callable[[], None] | None) -> None:
        """A transfer from the address `donor` begins, and `end` ends it from another thread. None: it is over."""
        with self._changed:
            self._donor_address, self._end_following = donor, end or _do_nothing
            is_planned_anew = self._newest is not None and self.find_donor(self._newest)[1] not in ("", donor)
            if self._interrupted or is_planned_anew:
                self._end_following()  # while it was connected

    def has_other_donor(self, donor: str) -> bool:
        """Whether a round that was planned since then names another donor than `donor` for this worker."""
        with self._changed:
            newest = self._newest
            return newest is not None and not newest.forced and self.find_donor(newest)[0] not in ("", donor)

    def list_newcomers(self, message: pb.Round) -> list[str]:
        """The newcomers that get the state from this worker."""
        members = self.current.workers if self.current else ()
        return [m.worker for m in message.members if m.donor == self._worker and m.worker not in members]

    # ---- inside

    def _build_group(self, preparation: _RoundBuild) -> None:
        message = preparation.message
        rank = _find_rank(message, self._worker)
        assert rank is not None
        try:
            group = self._build(message.id, rank, [RoundMember(m.worker, m.peer_address) for m in message.members])
        except Exception as exc:  # the training thread waits for the result, whatever it is
            if not isinstance(exc, RoundBroken):
                _log.exception("round %d could not be built", message.id)
            with self._changed:
                preparation.failure, preparation.failed_at = str(exc) or repr(exc), time.monotonic()
                self._changed.notify_all()
            return
        with self._changed:
            is_wanted = self._preparations.get(message.id) is preparation
            if is_wanted:
                preparation.group = group
            self._changed.notify_all()
        if not is_wanted:
            group.close()

    def _use_group(self, preparation: _RoundBuild, group: Group) -> EnteredRound:
        self._leave_current()
        message = preparation.message
        del self._preparations[message.id]
        self._discard_builds(message.id)
        shares = tuple(RankRange(m.first_logical_rank, m.logical_ranks) for m in message.members)
        self.current = EnteredRound(message.id, group, tuple(m.worker for m in message.members), shares)
        return self.current

    def _leave_current(self) -> None:
        if self.current is not None:
            self.current.group.close()
            self.current = None

    def _discard_builds(self, up_to: int) -> None:
        for round_id in [prepared for prepared in self._preparations if prepared <= up_to]:
            group = self._preparations.pop(round_id).group
            if group is not None:
                group.close()

    def _abort_older(self, round_id: int) -> None:
        self._end_following()
        if self.current is not None and self.current.id < round_id:
            self.current.group.abort()
        for prepared, preparation in self._preparations.items():
            if prepared < round_id and preparation.group is not None:
                preparation.group.abort()


def _do_nothing() -> None:
    pass


def _find_rank(message: pb.Round, worker: str) -> int | None:
    ranks: Sequence[str] = [member.worker for member in message.members]
    return ranks.index(worker) if worker in ranks else None
