"""The engine of elastic training: it runs the steps of the plan while workers come and go."""

from __future__ import annotations

import logging
import traceback
from typing import NamedTuple, Protocol

import torch

from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.collective.exchange import GradientExchange
from elasticdl.collective.group import Group
from elasticdl.collective.squared_norms import SquaredNorms
from elasticdl.collective.tree import RankRange, ReductionTree
from elasticdl.errors import PermanentError, RoundBroken
from elasticdl.faults import Faults
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.context import WorkerContext
from elasticdl.worker.embeddings.tables import EmbeddingTables
from elasticdl.worker.reading.feed import Feed
from elasticdl.worker.reading.stream_requests import SHARE_EVERY_STEPS, share_stream_positions
from elasticdl.worker.rounds.membership import EnteredRound
from elasticdl.worker.rounds.participant import RoundParticipant
from elasticdl.worker.rounds.shared_state import ModelState
from elasticdl.worker.rounds.step_report import LEFT_LOOP, OwnReport, StepReport, StepReportLayout
from elasticdl.worker.training.adaptive_batch import MEASURE_EVERY_UPDATES, NoiseMeter, Update
from elasticdl.worker.training.buffers import broadcast_buffers
from elasticdl.worker.training.consistency import ConsistencyGuard
from elasticdl.worker.training.loop import TrainingLoop
from elasticdl.worker.training.state import TrainingState
from elasticdl.worker.training.step import Step, gather_measurements

_log = logging.getLogger(__name__)


class EngineEvents(Protocol):
    """The hooks that a job adds to the steps of the engine."""

    def make_first_state(self) -> None:
        """Make or load the state of the job where no worker holds one."""

    def after_step(self, entered_round: EnteredRound) -> None:
        """A step of this round is applied."""

    def is_saved(self, step: int, before: int) -> bool:
        """Whether a checkpoint is due after an update that led from `before` to `step`."""


class _ReducedUpdate(NamedTuple):
    """An update whose gradients are whole, with the reports of the members."""

    round: EnteredRound
    report: StepReport
    update: Update
    buffers: dict[str, torch.Tensor]
    is_scaled: bool  # the batch changes with it


class ElasticEngine(TrainingLoop):
    """Owns the training thread's side of a worker."""

    def __init__(
        self,
        context: WorkerContext,
        training: TrainingState,
        feed: Feed,
        tables: EmbeddingTables,
        events: EngineEvents,
        squares: SquaredNorms,
    ) -> None:
        super().__init__(training, feed, tables)
        self._master = context.master
        self._donor = context.donor
        self._events = events
        self._faults = Faults.parse(context.env.faults, context.env.worker)
        self._state = ModelState(training, tables)
        self._participant = RoundParticipant(
            context,
            self._state,
            self._faults,
            events.make_first_state,
            self._begin_exchange,
        )
        self._exchange: GradientExchange | None = None  # of the round this worker is in
        self._tree = ReductionTree(self.plan.logical_ranks)
        self._is_ordered = context.spec.plan.reproducible
        self._squares = squares
        self._meter = NoiseMeter(self.plan.logical_ranks, squares)
        self._guard = ConsistencyGuard(context.spec.plan.guard_steps)
        self._reduction: _ReducedUpdate | None = None  # of the update that is open
        self._state_before_void: CapturedState | None = None  # the state that a void update must leave behind
        self._agreed = 0  # the round to enter, where the script left the loop before it could
        self._stops = False  # all members know that this step is the last
        self._has_joined = False
        self._has_stepped = False  # in this process
        self._current: Step | None = None
        self.requested_stop_reason = ""  # by the script
        self.has_left_loop = False
        self._has_left_update = False  # the script left its loop while an update was open
        self._retried = -1  # the step that was begun again after an exception
        self.failure: PermanentError | None = None
        self.is_orphaned = False  # all members have stopped, because one of them has no master any more
        training.keeps_gradients = self._donor.has_followers

    @property
    def has_left(self) -> bool:
        """Whether this worker takes part in no further step."""
        return self._participant.has_left

    def join(self) -> None:
        """Enter the first round of this worker; does nothing if it has entered one already."""
        if not self._has_joined:
            self._has_joined = True
            self._participant.join_next()

    @property
    def has_joined(self) -> bool:
        return self._has_joined

    @property
    def _has_ended(self) -> bool:
        return self.is_done or self.has_left

    def _begin(self) -> None:
        self.join()

    def _after_step(self) -> None:
        self._enter_agreed_round()

    def _end(self) -> None:
        self._master.activity.begin(pb.WAITING)  # no step is expected of what the script does next

    @property
    def has_whole_state(self) -> bool:
        """Whether the state is still that after the last update, despite an exception in the user's code."""
        step = self._current
        is_open = self._has_left_update or (step is not None and step.is_reduced)
        return self.training.has_state and not is_open and not self.has_left

    def retry_step(self, step: Step, exc: Exception) -> None:
        """Let `step` be computed again after `exc` in the user's code; raises `exc` if that was tried before.

        Other members may wait for what this worker has not computed: then the round is formed again, and all members
        begin the step again.
        """
        if self._retried == step.number or not self.has_whole_state or step.is_void:
            raise exc
        self._retried = step.number
        reason = f"step {step.number}: {type(exc).__name__}: {exc}"
        _log.warning("%s; the step is computed again\n%s", reason, "".join(traceback.format_exception(exc)))
        self._master.report_notice("step-retried", f"{reason}; it is computed again")
        entered_round = self._participant.current
        if entered_round is None:
            raise exc
        if entered_round.group.size > 1:
            self._participant.drop(entered_round.id, RoundBroken(reason))
            self._participant.join_next()
        else:
            self._state.discard_step()

    def _begin_exchange(self, entered_round: EnteredRound) -> None:
        self._exchange = GradientExchange(
            entered_round.group, self.training.gradients, self._tree, entered_round.shares, ordered=self._is_ordered
        )

    def _make_step(self) -> Step:
        passes = self.training.batch.passes(self.training.step, self.plan)
        self._current = Step(self.training.step, self.training, self._feed, self._tables, self, passes)
        return self._current

    # ---- the end of the loop before the end of the plan

    def _handle_loop_exit(self, step: Step) -> None:
        """Apply an update whose gradients are complete. Does not wait: `finish_loop_exit` tells the others."""
        self.has_left_loop = True
        self._master.activity.begin(pb.WAITING)
        self._has_left_update = step.is_reduced
        if step.is_reduced or step.is_void:
            self._close_update(step, is_last=True, is_left=True)

    def finish_loop_exit(self) -> None:
        """After the script has left its loop early: let all members stop after the same step."""
        if not self.has_left_loop:
            return
        self._enter_agreed_round()
        while not self._has_ended:
            step = self._current
            if step is None or not step.is_started or step.is_reduced or step.number != self.training.step:
                step = self._make_step()
                self.begin_update(step)
            step.skip_rest()
            if self.reduce(step):
                self._close_update(step, is_last=True)
        self._tables.flush()

    # ---- one update

    def _start_update(self, step: Step) -> None:
        training, entered_round, exchange = self.training, self._participant.current, self._exchange
        step.is_void = False
        if entered_round is None or exchange is None or self.has_left:
            step.start(RankRange(0, 0))
            self._void_update(step)
            return
        self._participant.timer.begin_step()
        self._master.activity.begin(pb.COMPUTING if self._has_stepped else pb.FIRST_STEP)
        if training.step != step.number or step.updates < training.phase:
            # Applied before this worker joined: computed only for the script's own variables.
            training.gradients.start_update(entered_round.share)
            step.start(entered_round.share)
            step.is_void = True
            return
        self._meter.begin_update(step.number, training.batch)
        exchange.start_step()
        step.start(entered_round.share)
        self._faults.inject(step.number, "begin")

    def reduce(self, step: Step) -> bool:
        """Make the gradients whole. False: the round broke, and the batches of another share must be computed."""
        entered_round = self._participant.current
        if step.is_void or entered_round is None:
            self._void_update(step)
            return True
        self._faults.inject(step.number, "computed")
        self._participant.timer.record_computed(entered_round.share.count, step.passes)
        position = self.training.position
        self._master.activity.begin(pb.EXCHANGING)
        try:
            self._reduce_update(step, entered_round)
            self._master.activity.begin(pb.COMPUTING)
            return True
        except RoundBroken as exc:
            self._participant.drop(entered_round.id, exc)
            self._participant.join_next()
        except PermanentError as exc:
            self.failure = exc  # a script that swallows it still has not trained what it says
            raise
        if self.has_left or self.training.position != position:
            self._void_update(step)
            return True
        self._start_update(step)
        return False

    def _reduce_update(self, step: Step, entered_round: EnteredRound) -> None:
        training, exchange, group = self.training, self._exchange, entered_round.group
        assert exchange is not None
        layout = StepReportLayout(self.plan.logical_ranks, len(training.gradients.parameters))
        is_whole = self._guard.is_due(step.number, is_saved=self._is_saved_after(step))
        measured = step.measurements.encode()
        tail = training.gradients.tail(training.gradients.node_sums()[0])
        own = self._make_own_report(step, len(measured), is_whole_digest=is_whole)
        layout.write(tail, entered_round.rank, own)
        self._tables.before_reduce(step.number)
        reduced = exchange.reduce()
        buffers = self._shared_buffers(step, entered_round)
        self._faults.inject(step.number, "reduced")
        report = layout.read(training.gradients.tail(reduced))
        step.averages = gather_measurements(measured, report.measured_bytes, group).averages()
        self._share_streams(step, entered_round, report)
        if not report.leavers:  # they may have left between two updates of a step
            digests = report.digests[: group.size]
            self._guard.check_equal(digests, entered_round.workers, group, training, is_whole=is_whole)
        if self._tables.after_reduce(step.number):
            _wait_for_members(group)
        if report.leavers:
            who = " and ".join(entered_round.workers[rank] for rank in report.leavers)
            self.stop_reason = self._find_stop_reason() or f"the script of {who} left its training loop"
            training.end_step()
            self._void_update(step)
            return
        training.normalize_gradients(reduced, report.losses, report.records, step.planned_records)
        update = self._make_update(step, reduced, report)
        is_scaled = update.change != training.batch.change
        training.open_update(reduced, update, buffers, report.touched)
        step.is_reduced = True
        self._reduction = _ReducedUpdate(entered_round, report, update, buffers, is_scaled)

    def _make_own_report(self, step: Step, measured_bytes: int, *, is_whole_digest: bool) -> OwnReport:
        """The report that this worker sends the other members with its gradients."""
        training, is_orphaned = self.training, self._master.is_orphaned
        return OwnReport(
            losses=step.losses,
            records=step.records,
            vote=LEFT_LOOP if self.has_left_loop else self._participant.choose_vote(),
            must_stop=bool(self._find_stop_reason()) or is_orphaned,
            squares=self._squares,
            batch_change=self._master.find_batch_change(
                step.number + step.passes, (training.batch.change, training.batch.scale)
            ),
            rate_factor=training.wanted_rate_factor,
            digest=self._guard.digest(training, is_whole=is_whole_digest),
            touched=bytes(training.gradients.touched),
            measured_bytes=measured_bytes,
            is_orphaned=is_orphaned,
        )

    def _is_saved_after(self, step: Step) -> bool:
        return self._events.is_saved(step.number + step.passes, step.number)

    def _share_streams(self, step: Step, entered_round: EnteredRound, report: StepReport) -> None:
        """Tell all members where streams stand: before other workers read them or a checkpoint, and now and then."""
        streams = self.training.user_state.streams
        if streams is None:
            return
        is_saved = report.must_stop or self._is_saved_after(step)
        if is_saved or report.agreed_round(entered_round.group.size) or step.number % SHARE_EVERY_STEPS == 0:
            share_stream_positions(streams, entered_round.share, entered_round.group)

    def _void_update(self, step: Step) -> None:
        """This worker takes no part in the update, and the script must not change this worker's state."""
        step.is_void, step.is_reduced = True, False
        self._state_before_void = None if self.has_left or not self.training.has_state else self.training.capture()
        self.training.open_void_update(self.training.gradients.acquire())

    def _close_update(self, step: Step, *, is_last: bool, is_left: bool = False) -> None:
        """Apply what the script has not applied, and tell newcomers and the master."""
        training = self.training
        step.is_started = False
        if step.is_void:
            training.close_void_update()
            if self._state_before_void is not None:
                training.load(self._state_before_void)
            self._state_before_void, step.is_void = None, False
            step.updates += 1
            return
        step.is_reduced = False
        reduction, self._reduction = self._reduction, None
        assert reduction is not None
        entered_round, report, update = reduction.round, reduction.report, reduction.update
        goes_on = is_last and not report.must_stop and not self._stops
        enter = report.agreed_round(entered_round.group.size) if goes_on else 0
        calls = training.close_update(is_last=is_last, is_left=is_left)
        step.updates += 1
        self._donor.send_update(training, update, calls, reduction.buffers, enter, ends_step=is_last)
        self._faults.inject(step.number, "applied")
        if reduction.is_scaled:
            self._master.report_batch_scaled(update.change, training.step, update.batch_scale)
        self._stops = self._stops or report.must_stop
        self.is_orphaned = self.is_orphaned or report.is_orphaned
        if not is_last:
            return
        self._complete_step(entered_round)
        if self.is_orphaned:
            self._participant.has_left = True  # the job is not at its end: its master may come back and go on
        elif self._stops:
            self.stop_reason = self._find_stop_reason() or "stopped"
        self._agreed = enter

    def _enter_agreed_round(self) -> None:
        """Between two steps: enter the round that all members have voted for."""
        agreed, self._agreed = self._agreed, 0
        if agreed:
            self._participant.enter(agreed)
        elif self._master.is_overdue:
            self._participant.has_left = True  # no other worker took over within the grace period

    def _make_update(self, step: Step, reduced: torch.Tensor, report: StepReport) -> Update:
        """The description of the update, which is the same in all members."""
        batch = self.training.batch
        scale = step.planned_records / batch.global_batch
        flat, share_left = self.training.gradients.flat(reduced), report.records / step.planned_records
        estimate = self._meter.estimate(flat, report.squares, report.noise_parts, scale, share_left)
        if self.training.user_state.scalers:
            estimate = None  # the gradients are scaled, and may be infinite
        change, factor = (report.batch_change, report.batch_scale), report.rate_factor
        loss = self.training.loss
        return Update(
            report.records, step.passes, scale, estimate, MEASURE_EVERY_UPDATES, *change, rate_factor=factor, loss=loss
        )

    def _complete_step(self, entered_round: EnteredRound) -> None:
        self._has_stepped = True
        gap_s = self._participant.timer.record_applied()
        if gap_s is not None:
            self._master.report_entered(entered_round.id, self.training.step, gap_s)
        self._master.record_progress(self.training, self._participant.timer)
        self.training.notify_step_end(self.plan)
        self._events.after_step(entered_round)

    def _find_stop_reason(self) -> str:
        return self._master.stop_reason or self.requested_stop_reason or self._callback_stop_reason

    def _shared_buffers(self, step: Step, entered_round: EnteredRound) -> dict[str, torch.Tensor]:
        """The buffers of logical rank 0, which the first member has computed."""
        # A first member that has left its loop has computed none; the others wait for its buffers all the same.
        buffers = (step.buffers if entered_round.rank == 0 else {}) or self.training.buffers.capture()
        return broadcast_buffers(buffers, entered_round.group, 0)


def _wait_for_members(group: Group) -> None:
    """A barrier."""
    group.allgather(torch.empty(group.size, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
