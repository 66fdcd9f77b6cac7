"""The worker's connection to the master: reports of the worker, and messages of the master."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from elasticdl import stacks
from elasticdl.collective.peers import PeerCredentials
from elasticdl.errors import MasterUnreachable
from elasticdl.ps.fleet import FleetView
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.session import MasterSession, exit_superseded
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import WorkerEnv
from elasticdl.worker.activity import ActivityTracker
from elasticdl.worker.rounds.membership import RoundMembership
from elasticdl.worker.training.adaptive_batch import BatchScaleChange, newest_change
from elasticdl.worker.training.loss_history import LossHistory
from elasticdl.worker.training.state import NO_STATE

if TYPE_CHECKING:
    from elasticdl.worker.rounds.step_timer import StepTimer
    from elasticdl.worker.training.state import TrainingState

GOODBYE_TIMEOUT_S = 2.0
LOSS_REPORT_S = 1.0  # between two reports of the loss curve: each is journaled

_GIVEN_UP_GRACE_SHARE = 0.3  # of the grace period: how long a leaving worker waits for an absent master


class MasterConnection:
    """Sends what the worker reports, and keeps what the master has said until the training thread asks for it.

    Listeners are called by the session's thread.
    """

    def __init__(
        self,
        env: WorkerEnv,
        spec: JobSpec,
        token: str,
        rounds: RoundMembership,
        cpu_capability: str = "",
    ) -> None:
        self.worker = env.worker
        self.run = env.run
        self.directory = JobDirectory(env.job_directory)
        self.token = token
        self.credentials = PeerCredentials(
            env.worker, self.token, env.run, self.directory.tls_credentials(spec, env.worker)
        )
        self.timing = spec.timing
        self._is_local = spec.cluster is None
        self._rounds = rounds
        self._hello = pb.Hello(
            replica=env.worker, pid=os.getpid(), host=socket.gethostname(), step=NO_STATE,
            cpu_capability=cpu_capability,
        )  # fmt: skip
        self._heartbeat = pb.Heartbeat(step=NO_STATE)
        self.activity = ActivityTracker()  # of the training thread; of one that works by leases, until it is ready
        self._watches = spec.timing.stall_timeout_s > 0
        self._losses = LossHistory()  # of a job that trains in rounds
        self._reported_at = 0.0
        self._reporting = threading.Lock()  # points that are taken from the curve first are sent first
        self._changed = threading.Condition()
        self.stop_reason = ""
        self.is_released = False
        self.must_save_state = False  # the job has failed, and this worker is to write its state
        self.is_leaving = False
        self._left_by = float("inf")
        self._expelled = False
        self._exports: deque[pb.Export] = deque()
        self._saves: deque[pb.WriteCheckpoint] = deque()
        self.must_prepare_state = False  # to make the first state of a job that trains by leases
        self.evaluation_results: deque[tuple[int, Mapping[str, float]]] = deque()  # results, for callbacks
        self._changes: tuple[BatchScaleChange, ...] = ()
        self.fleet: FleetView | None = None  # the newest, in a job with ps
        self._evaluation_listeners: list[Callable[[int], None]] = []
        self._fleet_listeners: list[Callable[[FleetView], None]] = []
        self._message_listeners: list[Callable[[], None]] = []
        self._session = MasterSession(
            self.directory,
            spec,
            self._make_hello,
            self._make_heartbeat,
            self._on_message,
            run=env.run,
            on_run_superseded=exit_superseded,
        )

    def open(self, peer_address: str = "") -> None:
        self._hello.peer_address = peer_address
        self._session.start()

    def close(self, reason: str) -> None:
        self.report_losses()
        # A master that has released this worker may be gone by now: do not wait long for its answer.
        self._session.close(
            reason, min(self.timing.rpc_timeout_s, GOODBYE_TIMEOUT_S) if self.is_released else self.timing.rpc_timeout_s
        )

    # ---- listeners

    def add_evaluation_listener(self, listener: Callable[[int], None]) -> None:
        """`listener(step)` is called when the master starts the evaluation of a step."""
        self._evaluation_listeners.append(listener)

    def add_fleet_listener(self, listener: Callable[[FleetView], None]) -> None:
        """`listener(fleet)` is called when the ps of the job change."""
        self._fleet_listeners.append(listener)

    def add_message_listener(self, listener: Callable[[], None]) -> None:
        """`listener()` is called after each message of the master."""
        self._message_listeners.append(listener)

    def use_loss_history(self, losses: LossHistory) -> None:
        """Report this loss curve: while the worker is the first of its round, and when it ends."""
        self._losses = losses

    # ---- reports of this worker

    def report_ready(self) -> None:
        if self.activity.current == pb.STARTING:
            self.activity.begin(pb.WAITING)
        self._hello.ready = True
        self._session.send(pb.WorkerMessage(ready=pb.Ready()))

    def report_plan(self, plan: pb.DataPlan) -> None:
        self._session.send(pb.WorkerMessage(data_plan=plan))

    def record_progress(self, training: TrainingState, timer: StepTimer) -> None:
        """Remember for the next heartbeat how far the training is."""
        batch = training.batch
        self._hello.step = training.step
        self._heartbeat = pb.Heartbeat(
            round=self._hello.round, step=training.step, records=training.records, loss=training.loss,
            step_s=timer.step_s, compute_s=timer.compute_s, learning_rate=training.learning_rate * batch.rate_scale,
            timed_steps=timer.timed_steps, one_pass_step_s=timer.one_pass_step_s, pass_s=timer.pass_s,
            gradient_square=batch.noise.square, gradient_variance=batch.noise.variance,
            progress=batch.progress, batch_scale=batch.scale, slow_step_s=timer.slow_step_s,
        )  # fmt: skip

    def record_lease_progress(self, step: int, records: int, loss: float, step_s: float, learning_rate: float) -> None:
        """Remember for the next heartbeat how far this worker is in a job that trains by leases."""
        self._heartbeat = pb.Heartbeat(
            step=step, records=records, loss=loss, step_s=step_s, compute_s=step_s, learning_rate=learning_rate
        )

    def find_batch_change(self, step: int, known: tuple[int, int]) -> tuple[int, int]:
        """The id of the newest batch change that holds from `step` on, and its scale; `known` if none is newer."""
        return newest_change(self._changes, step, known)

    def report_batch_scaled(self, change: int, step: int, scale: int) -> None:
        message = pb.BatchScaled(change=change, step=step, scale=scale)
        self._session.send(pb.WorkerMessage(batch_scaled=message))

    def set_round(self, round_id: int) -> None:
        self._hello.round = round_id

    def report_entered(self, round_id: int, step: int, gap_s: float) -> None:
        self._session.send(pb.WorkerMessage(round_entered=pb.RoundEntered(round=round_id, step=step, gap_s=gap_s)))

    def report_broken(self, round_id: int, reason: str, donor: str = "") -> None:
        """This worker dropped the round; `donor` names the worker from which it got no state, if that is why."""
        self._hello.round = 0
        self._session.send(pb.WorkerMessage(round_failed=pb.RoundFailed(round=round_id, reason=reason, donor=donor)))

    def report_snapshot(self, step: int) -> None:
        self._session.send(pb.WorkerMessage(snapshot=pb.Snapshot(step=step)))

    def report_checkpoint(self, step: int, path: str, seconds: float, copy_s: float) -> None:
        written = pb.CheckpointWritten(step=step, path=path, seconds=seconds, copy_s=copy_s)
        self._session.send(pb.WorkerMessage(checkpoint=written))

    def report_finished(self, step: int, records: int, reason: str, progress: float = 0.0) -> None:
        self.report_losses()
        finished = pb.Finished(step=step, records=records, reason=reason, progress=progress)
        newest, epoch = self._losses.newest, self._losses.epoch
        if newest is not None and epoch is not None:
            finished.loss = newest.loss
            finished.epoch.CopyFrom(epoch.to_message())
        self._session.send(pb.WorkerMessage(finished=finished))

    def report_losses(self) -> None:
        """Send the points of the loss curve that were not sent yet and that the master does not have."""
        with self._reporting:
            while (message := self._losses.take_unsent()) is not None:
                self._session.send(pb.WorkerMessage(loss_report=message))

    def report_exported(self, path: str) -> None:
        self._session.send(pb.WorkerMessage(exported=pb.Exported(path=path)))

    def report_notice(self, kind: str, reason: str, step: int | None = None) -> None:
        """Add an event to the log about something this worker handles itself.

        `kind` is one of those in master/machine/notices.py.
        """
        notice = pb.Notice(kind=kind, reason=reason, step=max(0, self._hello.step) if step is None else step)
        self._session.send(pb.WorkerMessage(notice=notice))

    def report_bad_record(self, source: str, record: int, reason: str) -> None:
        """This record is skipped. The master counts it once, however many workers report it."""
        self._session.send(pb.WorkerMessage(bad_record=pb.BadRecord(source=source, record=record, reason=reason)))

    def report_failure(self, message: str, *, wrong_job: bool, permanent: bool) -> None:
        self.report_losses()
        failure = pb.Failure(message=message, wrong_job=wrong_job, permanent=permanent)
        self._session.send(pb.WorkerMessage(failure=failure))

    def leave(self, reason: str) -> None:
        """This worker must leave: at the next planned round, or at once if it is in no round."""
        if self.is_leaving:
            return
        self.is_leaving = self._hello.leaving = True
        # The last fifth of the grace period is for a checkpoint, if no other worker takes over.
        self._left_by = time.monotonic() + 0.8 * self.timing.grace_period_s
        self._session.send(pb.WorkerMessage(leaving=pb.Leaving(reason=reason)))
        self._rounds.wake()

    @property
    def is_overdue(self) -> bool:
        return time.monotonic() > self._left_by

    # ---- what the master has said

    @property
    def is_expelled(self) -> bool:
        """Whether the master has declared this worker lost: its state counts no more."""
        return self._expelled

    def rejoin(self) -> None:
        """After an expulsion: this worker is a newcomer without state, ready to join."""
        self._expelled = False
        self._hello.round, self._hello.step = 0, NO_STATE
        self._heartbeat = pb.Heartbeat(step=NO_STATE)
        self.report_ready()

    @property
    def is_orphaned(self) -> bool:
        """Whether the master will not come back: it was away for too long, or its launcher has given it up."""
        away_s = self._session.disconnected_s
        return away_s > self.timing.orphan_timeout_s or (self.is_leaving and away_s > 0 and self._is_given_up(away_s))

    def _is_given_up(self, away_s: float) -> bool:
        """Whether the launcher that told this worker to leave has ended the job without its master.

        The launcher then writes the result, unless its disk is full: on one machine a master is never away for long.
        """
        is_long = self._is_local and away_s > _GIVEN_UP_GRACE_SHARE * self.timing.grace_period_s
        return is_long or self.directory.result.exists()

    def wait_for_fleet(self, timeout_s: float) -> FleetView:
        """The ps of the job, as soon as they serve."""
        with self._changed:
            self._changed.wait_for(lambda: self.fleet is not None or self.is_released, timeout_s)
        if self.fleet is None:
            raise MasterUnreachable(f"the master named no ps within {timeout_s:g} s; see the logs of the ps")
        return self.fleet

    def next_export(self) -> pb.Export | None:
        return self._exports.popleft() if self._exports else None

    def next_save(self) -> pb.WriteCheckpoint | None:
        return self._saves.popleft() if self._saves else None

    def wait_for_message(self, timeout_s: float) -> None:
        """Wait until the master says something, for at most `timeout_s`."""
        with self._changed:
            self._changed.wait(timeout_s)

    def _on_message(self, message: pb.MasterMessage) -> None:
        match message.WhichOneof("message"):
            case "round":
                self._rounds.add_planned(message.round)
            case "leave":
                if not self._hello.ready:
                    os._exit(0)  # the master knows; nothing is lost, and building the model may take long
                self.leave(message.leave.reason)
            case "stop":
                self.stop_reason = message.stop.reason or "stopped"
            case "export":
                self._exports.append(message.export)
            case "write_checkpoint":
                self._saves.append(message.write_checkpoint)
            case "initialize":
                self.must_prepare_state = True
            case "save_state":
                self.must_save_state = True
                self._rounds.interrupt("the job has failed, and its state is kept")
            case "release":
                self.is_released = True
                self._rounds.interrupt("released")
            case "reset":
                self._expelled, self._hello.ready = True, False
                self._rounds.interrupt(f"expelled: {message.reset.reason}")
            case "evaluation":
                self.evaluation_results.append((message.evaluation.step, dict(message.evaluation.metrics)))
            case "evaluate":
                for on_evaluation in self._evaluation_listeners:
                    on_evaluation(message.evaluate.step)
            case "batches":
                changes = message.batches.changes
                self._changes = tuple(BatchScaleChange(change.id, change.step, change.scale) for change in changes)
            case "dump_stacks":
                stacks.dump_stacks(message.dump_stacks.reason)
            case "losses_journaled":
                self._losses.forget_until(message.losses_journaled.step)
            case "fleet":
                self.fleet = FleetView.from_proto(message.fleet)
                for on_fleet in self._fleet_listeners:
                    on_fleet(self.fleet)
        with self._changed:
            self._changed.notify_all()
        for on_message in self._message_listeners:
            on_message()

    def _make_hello(self) -> pb.Hello:
        return self._hello

    def _make_heartbeat(self) -> pb.Heartbeat:
        current, now = self._rounds.current, time.monotonic()
        if current is not None and current.rank == 0 and now - self._reported_at >= LOSS_REPORT_S:
            self._reported_at = now
            self.report_losses()
        heartbeat = pb.Heartbeat()
        heartbeat.CopyFrom(self._heartbeat)
        heartbeat.joined_round = current.id if current is not None else 0
        if self._watches:
            heartbeat.activity, heartbeat.activity_s, heartbeat.blocked_s, heartbeat.pause_reason = (
                self.activity.sample()
            )
        return heartbeat
