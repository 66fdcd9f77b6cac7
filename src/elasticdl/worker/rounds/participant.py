"""Takes this worker into rounds, out of them, and into the next when one breaks."""

from __future__ import annotations

import logging
from collections.abc import Callable

from elasticdl.errors import RoundBroken, StateTransferFailed
from elasticdl.faults import Faults, Moment
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.context import WorkerContext
from elasticdl.worker.rounds.membership import EnteredRound
from elasticdl.worker.rounds.recovery import catch_up, recover_state
from elasticdl.worker.rounds.shared_state import SharedState, has_state
from elasticdl.worker.rounds.step_timer import StepTimer

_log = logging.getLogger(__name__)


class RoundParticipant:
    """The training thread's side of rounds. `current` is the round it is in."""

    def __init__(
        self,
        context: WorkerContext,
        state: SharedState,
        faults: Faults,
        make_first_state: Callable[[], None],
        prepare_round: Callable[[EnteredRound], None],
    ) -> None:
        """`make_first_state` makes the state of the job where no worker holds one; `prepare_round` follows an entry."""
        self.timer = StepTimer()
        self.has_left = False
        self._rounds = context.rounds
        self._master = context.master
        self._donor = context.donor
        self._state = state
        self._faults = faults
        self._make_first_state = make_first_state
        self._prepare_round = prepare_round
        self._transfers = 0  # state transfers that this worker has asked for

    @property
    def current(self) -> EnteredRound | None:
        return self._rounds.current

    def choose_vote(self) -> int:
        """The round that this worker can enter after this step; 0 for none."""
        message = self._rounds.planned_round()
        if message is None:
            return 0
        newcomers = self._rounds.list_newcomers(message)
        self._donor.set_newcomers(newcomers)
        prepared = self._rounds.prepared_round_id()
        is_ready = self._donor.are_caught_up(newcomers, self._state.step, self.timer.step_s)
        return prepared if is_ready and message.id == prepared else 0

    def enter(self, round_id: int) -> None:
        """Enter the round that all members have voted for, or the next one if it breaks."""
        self._master.activity.begin(pb.ENTERING)
        try:
            entered_round = self._rounds.enter(round_id)
        except RoundBroken as exc:
            self.drop(round_id, exc)
            self.join_next()
            return
        if entered_round is None:
            self.has_left = True
        else:
            self._use_round(entered_round)

    def drop(self, round_id: int, exc: RoundBroken) -> None:
        """The round broke: forget what was computed in it, and tell the master."""
        self._rounds.drop(round_id)
        self._state.discard_step()
        if self._master.is_expelled:
            return
        _log.info("round %d broke: %s", round_id, exc)
        self._master.report_broken(round_id, str(exc), exc.donor if isinstance(exc, StateTransferFailed) else "")

    def join_next(self) -> None:
        """Enter the next round, however often that breaks: a forced one, or by state transfer without a state."""
        while not self.has_left:
            self._rounds.resume()  # before looking why it was interrupted: a later interruption interrupts again
            if self._master.is_expelled:
                self._state.discard()
                self._master.rejoin()
            elif self._is_dismissed:
                self.has_left = True
                return
            entered_round = self._try_next()
            if entered_round is not None:
                self._use_round(entered_round)
                return

    def _try_next(self) -> EnteredRound | None:
        """Wait for the next round and enter it with the state of the others; None if it breaks."""
        round_id = 0
        self._master.activity.begin(pb.WAITING)
        try:
            message = self._rounds.wait_for_round(
                holds_state=has_state(self._state), is_dismissed=lambda: self._is_dismissed
            )
            round_id = message.id
            if message.forced:
                self._master.activity.begin(pb.ENTERING)
                entered_round = self._rounds.enter(round_id)
                assert entered_round is not None
                recover_state(entered_round.group, self._state, self._make_first_state)
                return entered_round
            self._master.activity.begin(pb.WAITING)
            self._transfers += 1
            round_id = catch_up(message, self._rounds, self._master, self._state, self._inject_transfer_fault)
            self._master.activity.begin(pb.ENTERING)
            entered_round = self._rounds.enter(round_id)
            assert entered_round is not None
            return entered_round
        except StateTransferFailed as exc:
            if self._rounds.has_other_donor(exc.donor):
                self._rounds.drop(round_id)  # the master has planned another round already
            else:
                self.drop(round_id, exc)
        except RoundBroken as exc:
            if round_id:
                self.drop(round_id, exc)
        return None

    def _use_round(self, entered_round: EnteredRound) -> None:
        self._prepare_round(entered_round)
        self.timer.begin_round()
        self._master.set_round(entered_round.id)
        share = entered_round.share
        _log.info(
            "round %d: rank %d of %d, logical ranks %d..%d",
            entered_round.id, entered_round.rank, entered_round.group.size, share.first, share.stop - 1,
        )  # fmt: skip

    @property
    def _is_dismissed(self) -> bool:
        """Outside of a round: whether there is no round to wait for."""
        master = self._master
        return (
            master.is_released
            or master.is_orphaned
            or master.must_save_state
            or (master.is_leaving and not has_state(self._state))
        )

    def _inject_transfer_fault(self, moment: Moment) -> None:
        self._faults.inject(self._transfers, moment)
