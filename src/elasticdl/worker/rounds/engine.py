"""The engine of elastic training: it runs the steps of the plan while workers come and go."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.collective.exchange import GradientExchange
from elasticdl.collective.squared_norms import SquaredNorms
from elasticdl.collective.tree import RankRange, ReductionTree
from elasticdl.data.plan import TrainingPlan
from elasticdl.errors import ElasticDLError, HandoverFailed, PermanentError, RoundBroken
from elasticdl.faults import Faults, Moment
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.embeddings.tables import EmbeddingTables
from elasticdl.worker.master_connection import MasterConnection
from elasticdl.worker.reading.feed import Feed
from elasticdl.worker.reading.stream_requests import SHARE_EVERY_STEPS, share_stream_positions
from elasticdl.worker.rounds.donor import StateDonor
from elasticdl.worker.rounds.membership import EnteredRound, RoundMembership
from elasticdl.worker.rounds.recovery import catch_up, recover_state
from elasticdl.worker.rounds.step_report import LEFT_LOOP, StepReport, StepReportLayout
from elasticdl.worker.rounds.step_timer import StepTimer
from elasticdl.worker.training.adaptive_batch import MEASURE_EVERY_UPDATES, NoiseMeter, Update
from elasticdl.worker.training.buffers import broadcast_buffers
from elasticdl.worker.training.consistency import ConsistencyGuard
from elasticdl.worker.training.state import TrainingState
from elasticdl.worker.training.step import Step, gather_measurements

_log = logging.getLogger(__name__)


class _ReducedUpdate(NamedTuple):
    """What the members said of an update whose gradients are whole."""

    round: EnteredRound
    report: StepReport
    update: Update
    buffers: dict[str, torch.Tensor]
    is_scaled: bool  # the batch changes with it


class ElasticEngine:
    """Owns the training thread's side of a worker."""

    def __init__(
        self,
        training: TrainingState,
        feed: Feed,
        rounds: RoundMembership,
        link: MasterConnection,
        donor: StateDonor,
        tables: EmbeddingTables,
        first_state: Callable[[], None],
        after_step: Callable[[EnteredRound], None],
        *,
        ordered: bool,
        faults: Faults,
        squares: SquaredNorms,
        guard: ConsistencyGuard,
        is_saved: Callable[[int, int], bool],
    ) -> None:
        """`is_saved(step, before)`: whether a checkpoint is due after an update that led from `before` to `step`."""
        self.training = training
        self.plan: TrainingPlan = feed.plan
        self._feed = feed
        self._rounds = rounds
        self._link = link
        self._donor = donor
        self._tables = tables
        self._first_state = first_state
        self._after_step = after_step
        self._tree = ReductionTree(self.plan.logical_ranks)
        self._ordered = ordered
        self._faults = faults
        self._squares = squares
        self._meter = NoiseMeter(self.plan.logical_ranks, squares)
        self._guard = guard
        self._is_saved = is_saved
        self._exchange: GradientExchange | None = None
        self._reduction: _ReducedUpdate | None = None  # of the update that is open
        self._kept: CapturedState | None = None  # the state that a void update is to leave behind
        self._agreed = 0  # the round to enter, where the script left the loop before it could
        self._stops = False  # all members know that this step is the last
        self._has_joined = False
        self._has_stepped = False  # in this process
        self._handovers = 0  # that this worker has asked for
        self._current: Step | None = None
        self.timer = StepTimer()
        self.requested_stop_reason = ""  # by the script
        self.has_left_loop = False
        self._has_left_update = False  # the script left its loop while an update was open
        self._retried = -1  # the step that was begun again after an exception
        self.failure: PermanentError | None = None
        self.stop_reason = ""  # why training ended before the plan did
        self.has_left = False
        self.is_orphaned = False  # all members have stopped, since one took the master to be away for good
        training.keeps_gradients = donor.has_followers

    @property
    def is_done(self) -> bool:
        return bool(self.stop_reason) or self.training.step >= self.plan.total_steps

    def join(self) -> None:
        """Into the first round of this worker; does nothing where it is in one already."""
        if not self._has_joined:
            self._has_joined = True
            self._join_next_round()

    @property
    def has_joined(self) -> bool:
        return self._has_joined

    def steps(self) -> Iterator[Step]:
        """Every step from here to the end of the plan. Ends early when stopped, or when this worker has left."""
        self.join()
        for callback in self.training.callbacks:
            callback.on_train_begin(self.training.model)
        while not self.is_done and not self.has_left:
            step = self._current = self._new_step()
            try:
                yield step
            except GeneratorExit:
                self._handle_loop_exit(step)
                raise
            if not step.is_reduced and not step.is_void:
                raise ElasticDLError(
                    f"step {step.number}: iterate over all its batches, `for features, labels in step`"
                )
            self.training.layout.check_trained(step.number, step.trained)
            self._close_update(step, is_last=True)
            self._enter_agreed_round()
        self._tables.flush()
        self._link.activity.begin(pb.WAITING)  # no step is expected of what the script does next

    @property
    def has_whole_state(self) -> bool:
        """Whether an exception in the user's code has left the state as it was after the last update."""
        step = self._current
        is_open = self._has_left_update or (step is not None and step.is_reduced)
        return self.training.has_state and not is_open and not self.has_left

    def retry_step(self, step: Step, exc: Exception) -> None:
        """Let `step` be computed again after `exc` of the user's code; raises it where that was tried before.

        Others may wait for what this worker has not computed: then the round is formed anew, and all begin the step
        again.
        """
        if self._retried == step.number or not self.has_whole_state or step.is_void:
            raise exc
        self._retried = step.number
        why = f"step {step.number}: {type(exc).__name__}: {exc}"
        _log.warning("%s; the step is computed again\n%s", why, "".join(traceback.format_exception(exc)))
        self._link.report_notice("step-retried", f"{why}; it is computed again")
        seat = self._rounds.current
        if seat is None:
            raise exc
        if seat.group.size > 1:
            self._drop_broken_round(seat.id, RoundBroken(why))
            self._join_next_round()
        else:
            self.training.gradients.discard()
            self._tables.discard_step()

    def _new_step(self) -> Step:
        passes = self.training.batch.passes(self.training.step, self.plan)
        return Step(self.training.step, self.training, self._feed, self._tables, self, passes)

    # ---- the end of the loop before the end of the plan

    def _handle_loop_exit(self, step: Step) -> None:
        """The script breaks out of its loop, or fails. What is whole is applied; nobody is waited for here."""
        self.has_left_loop = True
        self._link.activity.begin(pb.WAITING)
        self._has_left_update = step.is_reduced
        if step.is_reduced or step.is_void:
            self._close_update(step, is_last=True, is_left=True)

    def finish_loop_exit(self) -> None:
        """After the script has left its loop early: let all members stop with the same step."""
        if not self.has_left_loop:
            return
        self._enter_agreed_round()
        while not self.is_done and not self.has_left:
            step = self._current
            if step is None or not step.is_started or step.is_reduced or step.number != self.training.step:
                step = self._current = self._new_step()
                self.begin_update(step)
            step.skip_rest()
            if self.reduce(step):
                self._close_update(step, is_last=True)
        self._tables.flush()

    # ---- one update

    def begin_update(self, step: Step) -> None:
        if step.is_reduced or step.is_void:
            self._close_update(step, is_last=False)
        self.training.layout.check_unchanged(step.number, step.trained)
        self._start_update(step)

    def _start_update(self, step: Step) -> None:
        training, seat, exchange = self.training, self._rounds.current, self._exchange
        step.is_void = False
        if seat is None or exchange is None or self.has_left:
            step.start(RankRange(0, 0))
            self._void_update(step)
            return
        self.timer.begin_step()
        self._link.activity.begin(pb.COMPUTING if self._has_stepped else pb.FIRST_STEP)
        if training.step != step.number or step.updates < training.phase:
            # Applied before this worker came: computed for the sake of the script's variables alone.
            training.gradients.start_update(seat.share)
            step.start(seat.share)
            step.is_void = True
            return
        self._meter.begin_update(step.number, training.batch)
        exchange.start_step()
        step.start(seat.share)
        self._faults.inject(step.number, "begin")

    def reduce(self, step: Step) -> bool:
        """Make the gradients whole. False: the round broke, and the batches of another share are to be computed."""
        seat = self._rounds.current
        if step.is_void or seat is None:
            self._void_update(step)
            return True
        self._faults.inject(step.number, "computed")
        self.timer.record_computed(seat.share.count, step.passes)
        position = self.training.position
        self._link.activity.begin(pb.EXCHANGING)
        try:
            self._reduce_update(step, seat)
            self._link.activity.begin(pb.COMPUTING)
            return True
        except RoundBroken as exc:
            self._drop_broken_round(seat.id, exc)
            self._join_next_round()
        except PermanentError as exc:
            self.failure = exc  # a script may swallow it, and still has not trained what it says
            raise
        if self.has_left or self.training.position != position:
            self._void_update(step)
            return True
        self._start_update(step)
        return False

    def _reduce_update(self, step: Step, seat: EnteredRound) -> None:
        training, exchange = self.training, self._exchange
        assert exchange is not None
        tail = StepReportLayout(self.plan.logical_ranks, len(training.gradients.parameters))
        is_whole = self._guard.is_due(step.number, is_saved=self._is_saved(step.number + step.passes, step.number))
        measured = step.measurements.encode()
        orphaned = self._link.is_orphaned
        tail.write(
            training.gradients.tail(training.gradients.node_sums()[0]),
            step.losses,
            step.records,
            seat.rank,
            LEFT_LOOP if self.has_left_loop else self._vote(seat),
            stop=bool(self._find_stop_reason()) or orphaned,
            squares=self._squares,
            batch=self._link.find_batch_change(
                step.number + step.passes, (training.batch.change, training.batch.scale)
            ),
            rate_factor=training.wanted_rate_factor,
            digest=self._guard.digest(training, is_whole=is_whole),
            touched=bytes(training.gradients.touched),
            measured_bytes=len(measured),
            orphaned=orphaned,
        )
        self._tables.before_reduce(step.number)
        reduced = exchange.reduce()
        buffers = self._shared_buffers(step, seat)
        self._faults.inject(step.number, "reduced")
        heard = tail.read(training.gradients.tail(reduced))
        step.averages = gather_measurements(measured, heard.measured_bytes, seat.group).averages()
        self._share_streams(step, seat, heard)
        if not heard.leavers:  # they may have left between two updates of a step
            self._guard.check_equal(
                heard.digests[: seat.group.size], seat.workers, seat.group, training, is_whole=is_whole
            )
        if self._tables.after_reduce(step.number):
            self._wait_at_barrier(seat)
        if heard.leavers:
            who = " and ".join(seat.workers[rank] for rank in heard.leavers)
            self.stop_reason = self._find_stop_reason() or f"the script of {who} left its training loop"
            training.end_step()
            self._void_update(step)
            return
        training.normalize_gradients(reduced, heard.losses, heard.records, step.planned_records)
        update = self._make_update(step, reduced, heard)
        is_scaled = update.change != training.batch.change
        training.open_update(reduced, update, buffers, heard.touched)
        step.is_reduced = True
        self._reduction = _ReducedUpdate(seat, heard, update, buffers, is_scaled)

    def _share_streams(self, step: Step, seat: EnteredRound, heard: StepReport) -> None:
        """Tell all members where streams stand: before they change hands or are saved, and now and then."""
        streams = self.training.user_state.streams
        if streams is None:
            return
        is_saved = heard.must_stop or self._is_saved(step.number + step.passes, step.number)
        if is_saved or heard.agreed_round(seat.group.size) or step.number % SHARE_EVERY_STEPS == 0:
            share_stream_positions(streams, seat.share, seat.group)

    def _void_update(self, step: Step) -> None:
        """This worker takes no part in the update, and the script must not change the state that is here."""
        step.is_void, step.is_reduced = True, False
        self._kept = None if self.has_left or not self.training.has_state else self.training.capture()
        self.training.open_void_update(self.training.gradients.acquire())

    def _close_update(self, step: Step, *, is_last: bool, is_left: bool = False) -> None:
        """Apply what the script has not applied, and tell whoever must know."""
        training = self.training
        step.is_started = False
        if step.is_void:
            training.close_void_update()
            if self._kept is not None:
                training.load(self._kept)
            self._kept, step.is_void = None, False
            step.updates += 1
            return
        step.is_reduced = False
        reduction, self._reduction = self._reduction, None
        assert reduction is not None
        seat, heard, update = reduction.round, reduction.report, reduction.update
        enter = heard.agreed_round(seat.group.size) if is_last and not heard.must_stop and not self._stops else 0
        calls = training.close_update(is_last=is_last, is_left=is_left)
        step.updates += 1
        self._donor.send_update(training, update, calls, reduction.buffers, enter, ends_step=is_last)
        self._faults.inject(step.number, "applied")
        if reduction.is_scaled:
            self._link.report_batch_scaled(update.change, training.step, update.batch_scale)
        self._stops = self._stops or heard.must_stop
        self.is_orphaned = self.is_orphaned or heard.is_orphaned
        if not is_last:
            return
        self._complete_step(seat)
        if self.is_orphaned:
            self.has_left = True  # the job is not at its end: should its master come back, others go on with it
        elif self._stops:
            self.stop_reason = self._find_stop_reason() or "stopped"
        self._agreed = enter

    def _enter_agreed_round(self) -> None:
        """Between two steps: into the round that all have voted for."""
        agreed, self._agreed = self._agreed, 0
        if agreed:
            self._enter_round(agreed)
        elif self._link.is_overdue:
            self.has_left = True  # nobody took over within the grace

    def _make_update(self, step: Step, reduced: torch.Tensor, heard: StepReport) -> Update:
        """What all members know of the update, the same in each of them."""
        batch = self.training.batch
        scale = step.planned_records / batch.global_batch
        flat, kept = self.training.gradients.flat(reduced), heard.records / step.planned_records
        estimate = self._meter.estimate(flat, heard.squares, heard.noise_parts, scale, kept)
        if self.training.user_state.scalers:
            estimate = None  # the gradients are scaled, and may be infinite
        change, factor = (heard.batch_change, heard.batch_scale), heard.rate_factor
        loss = self.training.loss
        return Update(
            heard.records, step.passes, scale, estimate, MEASURE_EVERY_UPDATES, *change, rate_factor=factor, loss=loss
        )

    def _wait_at_barrier(self, seat: EnteredRound) -> None:
        """Until all members are here."""
        seat.group.allgather(torch.empty(seat.group.size, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))

    def _complete_step(self, seat: EnteredRound) -> None:
        self._has_stepped = True
        gap_s = self.timer.record_applied()
        if gap_s is not None:
            self._link.report_entered(seat.id, self.training.step, gap_s)
        self._link.record_progress(self)
        self.training.notify_step_end(self.plan)
        self._after_step(seat)

    @property
    def _is_dismissed(self) -> bool:
        """Outside of a round: whether there is none to wait for."""
        link = self._link
        return (
            link.is_released
            or link.is_orphaned
            or link.must_save_state
            or (link.is_leaving and not self.training.has_state)
        )

    def _find_stop_reason(self) -> str:
        said = next((c.stop_reason for c in self.training.callbacks if c.stop_reason), "")
        return self._link.stop_reason or self.requested_stop_reason or said

    def _shared_buffers(self, step: Step, seat: EnteredRound) -> dict[str, torch.Tensor]:
        """The buffers of logical rank 0, which the first member computed."""
        # A first member that has left its loop has computed none; the others wait for them all the same.
        buffers = (step.buffers if seat.rank == 0 else {}) or self.training.buffers.capture()
        return broadcast_buffers(buffers, seat.group, 0)

    # ---- rounds

    def _vote(self, seat: EnteredRound) -> int:
        message = self._rounds.planned_round()
        if message is None:
            return 0
        newcomers = self._rounds.list_newcomers(message)
        self._donor.set_newcomers(newcomers)
        prepared = self._rounds.prepared_round_id()
        is_ready = self._donor.are_caught_up(newcomers, self.training.step, self.timer.step_s)
        return prepared if is_ready and message.id == prepared else 0

    def _enter_round(self, round_id: int) -> None:
        self._link.activity.begin(pb.ENTERING)
        try:
            seat = self._rounds.enter(round_id)
        except RoundBroken as exc:
            self._drop_broken_round(round_id, exc)
            self._join_next_round()
            return
        if seat is None:
            self.has_left = True
        else:
            self._use_round(seat)

    def _use_round(self, seat: EnteredRound) -> None:
        self._exchange = GradientExchange(
            seat.group, self.training.gradients, self._tree, seat.shares, ordered=self._ordered
        )
        self.timer.begin_round()
        self._link.set_round(seat.id)
        _log.info("round %d: rank %d of %d, logical ranks %d..%d", seat.id, seat.rank, seat.group.size,
                  seat.share.first, seat.share.stop - 1)  # fmt: skip

    def _drop_broken_round(self, round_id: int, exc: RoundBroken) -> None:
        self._rounds.drop(round_id)
        self.training.gradients.discard()
        self._tables.discard_step()
        if self._link.is_expelled:
            return
        _log.info("round %d broke: %s", round_id, exc)
        self._link.report_broken(round_id, str(exc), exc.donor if isinstance(exc, HandoverFailed) else "")

    def _inject_transfer_fault(self, moment: Moment) -> None:
        self._faults.inject(self._handovers, moment)

    def _join_next_round(self) -> None:
        """Into the next round, however often that breaks: a forced one, or by hand-over where there is no state."""
        while not self.has_left:
            self._rounds.resume()  # before looking why it was interrupted: a later one interrupts again
            if self._link.is_expelled:
                self.training.discard()
                self._link.rejoin()
            elif self._is_dismissed:
                self.has_left = True
                return
            round_id = 0
            self._link.activity.begin(pb.WAITING)
            try:
                message = self._rounds.wait_for_round(
                    holds_state=self.training.has_state, is_dismissed=lambda: self._is_dismissed
                )
                round_id = message.id
                self._link.activity.begin(pb.ENTERING if message.forced else pb.WAITING)
                if message.forced:
                    seat = self._rounds.enter(message.id)
                    assert seat is not None
                    recover_state(seat.group, self.training, self._first_state)
                else:
                    self._handovers += 1
                    round_id = catch_up(message, self._rounds, self._link, self.training, self._inject_transfer_fault)
                    self._link.activity.begin(pb.ENTERING)
                    seat = self._rounds.enter(round_id)
                    assert seat is not None
            except HandoverFailed as exc:
                if self._rounds.has_other_donor(exc.donor):
                    self._rounds.drop(round_id)  # the master has planned anew already
                else:
                    self._drop_broken_round(round_id, exc)
                continue
            except RoundBroken as exc:
                if round_id:
                    self._drop_broken_round(round_id, exc)
                continue
            self._use_round(seat)
            return
