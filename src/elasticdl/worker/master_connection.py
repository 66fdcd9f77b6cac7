"""The worker's connection to the master: what it reports, and what the master has told it."""

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
from elasticdl.rpc.session import MasterSession, exit_run_over
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import WorkerEnv
from elasticdl.worker.activity import ActivityTracker
from elasticdl.worker.rounds.membership import RoundMembership
from elasticdl.worker.training.adaptive_batch import BatchScaleChange, newest_change
from elasticdl.worker.training.loss_history import LossHistory
from elasticdl.worker.training.state import NO_STATE

if TYPE_CHECKING:
    from elasticdl.worker.rounds.engine import ElasticEngine


GOODBYE_TIMEOUT_S = 2.0
LOSS_REPORT_S = 1.0  # between two reports of the loss curve: each is journaled


_GIVEN_UP_GRACE_SHARE = 0.3  # of the grace: so long a master may be away before whoever leaves does without it


class MasterConnection:
    def __init__(
        self,
        env: WorkerEnv,
        spec: JobSpec,
        rounds: RoundMembership,
        cpu_capability: str = "",
    ) -> None:
        self.worker = env.worker
        self.run = env.run
        self.directory = JobDirectory(env.job_directory)
        self.token = self.directory.load_token()
        self.credentials = PeerCredentials(
            env.worker, self.token, env.run, self.directory.tls_credentials(spec, env.worker)
        )
        self.timing = spec.timing
        self._is_local = spec.cluster is None
        self._rounds = rounds
        self._hello = pb.Hello(
            worker=env.worker, pid=os.getpid(), host=socket.gethostname(), step=NO_STATE,
            cpu_capability=cpu_capability,
        )  # fmt: skip
        self._heartbeat = pb.Heartbeat(step=NO_STATE)
        self.activity = ActivityTracker()  # of the training thread; of one that works by leases, until it is ready
        self._watches = spec.timing.stall_s > 0
        self.losses = (
            LossHistory()
        )  # of a job that trains in rounds: reported by its first worker, and by all at the end
        self._reported_at = 0.0
        self._reporting = threading.Lock()  # what was taken from the curve first is sent first
        self._changed = threading.Condition()
        self.stop_reason = ""
        self.is_released = False
        self.must_save_state = False  # the job has failed, and this worker is to write its state
        self.is_leaving = False
        self._left_by = float("inf")
        self._expelled = False
        self._exports: deque[pb.Export] = deque()
        self._saves: deque[pb.Save] = deque()
        self.must_prepare_state = False  # to make the first state of a job that trains by leases
        self.evaluation_results: deque[tuple[int, Mapping[str, float]]] = deque()  # results, for callbacks
        self._changes: tuple[BatchScaleChange, ...] = ()
        self.on_evaluation_started: Callable[[int], None] = lambda step: None
        self.on_message: Callable[[], None] = lambda: None  # after anything was told; of another thread
        self.fleet: FleetView | None = None  # the newest, in a job with ps
        self.on_fleet: Callable[[FleetView], None] = lambda fleet: None
        self._session = MasterSession(
            self.directory,
            spec,
            self._make_hello,
            self._make_heartbeat,
            self._on_message,
            run=env.run,
            on_run_over=exit_run_over,
        )

    def open(self, peer_address: str = "") -> None:
        self._hello.peer_address = peer_address
        self._session.start()

    def close(self, reason: str) -> None:
        self.report_losses()
        # Who released us may be gone by now, and has nothing to do with the answer.
        self._session.close(
            reason, min(self.timing.rpc_s, GOODBYE_TIMEOUT_S) if self.is_released else self.timing.rpc_s
        )

    # ---- said by this worker

    def report_ready(self) -> None:
        if self.activity.current == pb.STARTING:
            self.activity.begin(pb.WAITING)
        self._hello.ready = True
        self._session.send(pb.WorkerMessage(ready=pb.Ready()))

    def report_plan(
        self,
        total_steps: int,
        total_records: int,
        records_per_epoch: int,
        steps_per_epoch: int,
        validation_records: int = 0,
        best_metric: str = "",
        *,
        best_is_least: bool = False,
        progress: bytes = b"",
        global_batch: int = 0,
    ) -> None:
        planned = pb.Planned(
            total_steps=total_steps,
            total_records=total_records,
            records_per_epoch=records_per_epoch,
            steps_per_epoch=steps_per_epoch,
            validation_records=validation_records,
            best_metric=best_metric,
            best_is_least=best_is_least,
            progress=progress,
            global_batch=global_batch,
        )
        self._session.send(pb.WorkerMessage(planned=planned))

    def record_progress(self, engine: ElasticEngine) -> None:
        """Remember for the next heartbeat how far the training is."""
        training, pace, batch = engine.training, engine.timer, engine.training.batch
        self._hello.step = training.step
        self._heartbeat = pb.Heartbeat(
            round=self._hello.round, step=training.step, records=training.records, loss=training.loss,
            step_s=pace.step_s, compute_s=pace.compute_s, learning_rate=training.learning_rate * batch.rate_scale,
            timed_steps=pace.timed_steps, single_s=pace.one_pass_step_s, pass_s=pace.pass_s,
            square=batch.noise.square, variance=batch.noise.variance,
            progress=batch.progress, batch_scale=batch.scale, slow_step_s=pace.slow_step_s,
        )  # fmt: skip

    def record_lease_progress(self, step: int, records: int, loss: float, step_s: float, learning_rate: float) -> None:
        """Remember for the next heartbeat how far this worker is, in a job that trains by leases."""
        self._heartbeat = pb.Heartbeat(
            step=step, records=records, loss=loss, step_s=step_s, compute_s=step_s, learning_rate=learning_rate
        )

    def find_batch_change(self, step: int, known: tuple[int, int]) -> tuple[int, int]:
        """The newest change of the batch that holds from `step` on, and its scale; `known` where none is newer."""
        return newest_change(self._changes, step, known)

    def report_batch_scaled(self, change: int, step: int, scale: int) -> None:
        message = pb.BatchScaled(change=change, step=step, scale=scale)
        self._session.send(pb.WorkerMessage(batch_scaled=message))

    def set_round(self, round_id: int) -> None:
        self._hello.round = round_id

    def report_entered(self, round_id: int, step: int, gap_s: float) -> None:
        self._session.send(pb.WorkerMessage(entered=pb.Entered(round=round_id, step=step, gap_s=gap_s)))

    def report_broken(self, round_id: int, why: str, donor: str = "") -> None:
        """This worker dropped the round; `donor`: since it got no state from that one."""
        self._hello.round = 0
        self._session.send(pb.WorkerMessage(broken=pb.Broken(round=round_id, why=why, donor=donor)))

    def report_snapshot(self, step: int) -> None:
        self._session.send(pb.WorkerMessage(snapshot=pb.Snapshot(step=step)))

    def report_checkpoint(self, step: int, path: str, seconds: float, copy_s: float) -> None:
        written = pb.CheckpointWritten(step=step, path=path, seconds=seconds, copy_s=copy_s)
        self._session.send(pb.WorkerMessage(checkpoint=written))

    def report_finished(self, step: int, records: int, why: str, progress: float = 0.0) -> None:
        self.report_losses()
        finished = pb.Finished(step=step, records=records, why=why, progress=progress)
        newest, epoch = self.losses.newest, self.losses.epoch
        if newest is not None and epoch is not None:
            finished.loss = newest.loss
            finished.epoch.CopyFrom(epoch.to_message())
        self._session.send(pb.WorkerMessage(finished=finished))

    def report_losses(self) -> None:
        """Send what of the loss curve was not sent and is not known to the master."""
        with self._reporting:
            while (message := self.losses.take_unsent()) is not None:
                self._session.send(pb.WorkerMessage(losses=message))

    def report_exported(self, path: str) -> None:
        self._session.send(pb.WorkerMessage(exported=pb.Exported(path=path)))

    def report_notice(self, kind: str, reason: str, step: int | None = None) -> None:
        """Tell the event log of something this worker deals with itself; `kind` is one of master/machine/notices.py."""
        notice = pb.Notice(kind=kind, reason=reason, step=max(0, self._hello.step) if step is None else step)
        self._session.send(pb.WorkerMessage(notice=notice))

    def report_bad_record(self, source: str, record: int, why: str) -> None:
        """This record is skipped. The master counts it once, whoever tells of it."""
        self._session.send(pb.WorkerMessage(bad_record=pb.BadRecord(source=source, record=record, why=why)))

    def report_failure(self, message: str, *, wrong_job: bool, permanent: bool) -> None:
        self.report_losses()
        failure = pb.Failure(message=message, wrong_job=wrong_job, permanent=permanent)
        self._session.send(pb.WorkerMessage(failure=failure))

    def leave(self, reason: str) -> None:
        """This worker is to go: at the next planned round, or at once where it is in none."""
        if self.is_leaving:
            return
        self.is_leaving = self._hello.leaving = True
        # The last fifth of the grace is for a checkpoint, should nobody take over.
        self._left_by = time.monotonic() + 0.8 * self.timing.grace_s
        self._session.send(pb.WorkerMessage(leaving=pb.Leaving(reason=reason)))
        self._rounds.wake()

    @property
    def is_overdue(self) -> bool:
        return time.monotonic() > self._left_by

    # ---- told by the master

    @property
    def is_expelled(self) -> bool:
        """Whether the master has taken this worker for lost: its state is worth nothing any more."""
        return self._expelled

    def rejoin(self) -> None:
        """After an expulsion: a newcomer without state, ready to join."""
        self._expelled = False
        self._hello.round, self._hello.step = 0, NO_STATE
        self._heartbeat = pb.Heartbeat(step=NO_STATE)
        self.report_ready()

    @property
    def is_orphaned(self) -> bool:
        """Whether nobody will bring the master back: it was away for too long, or its launcher has given it up."""
        away_s = self._session.disconnected_s
        return away_s > self.timing.orphan_s or (self.is_leaving and away_s > 0 and self._is_given_up(away_s))

    def _is_given_up(self, away_s: float) -> bool:
        """Whether the launcher that told this worker to leave has ended the job without its master.

        It then writes the result, unless its disk is full: on one machine a master is never away for long.
        """
        is_long = self._is_local and away_s > _GIVEN_UP_GRACE_SHARE * self.timing.grace_s
        return is_long or self.directory.result.exists()

    def wait_for_fleet(self, timeout_s: float) -> FleetView:
        """The ps of the job, once they serve."""
        with self._changed:
            self._changed.wait_for(lambda: self.fleet is not None or self.is_released, timeout_s)
        if self.fleet is None:
            raise MasterUnreachable(f"the master named no ps within {timeout_s:g} s; see the logs of the ps")
        return self.fleet

    def next_export(self) -> pb.Export | None:
        return self._exports.popleft() if self._exports else None

    def next_save(self) -> pb.Save | None:
        return self._saves.popleft() if self._saves else None

    def wait_for_message(self, timeout_s: float) -> None:
        """Until something was told, at most `timeout_s`."""
        with self._changed:
            self._changed.wait(timeout_s)

    def _on_message(self, message: pb.MasterMessage) -> None:
        match message.WhichOneof("message"):
            case "round":
                self._rounds.add_planned(message.round)
            case "leave":
                if not self._hello.ready:
                    os._exit(0)  # the master knows; there is nothing to lose, and a model may take long to be made
                self.leave(message.leave.reason)
            case "stop":
                self.stop_reason = message.stop.reason or "stopped"
            case "export":
                self._exports.append(message.export)
            case "save":
                self._saves.append(message.save)
            case "prepare":
                self.must_prepare_state = True
            case "keep":
                self.must_save_state = True
                self._rounds.interrupt("the job has failed, and its state is kept")
            case "release":
                self.is_released = True
                self._rounds.interrupt("released")
            case "expelled":
                self._expelled, self._hello.ready = True, False
                self._rounds.interrupt(f"expelled: {message.expelled.reason}")
            case "evaluation":
                self.evaluation_results.append((message.evaluation.step, dict(message.evaluation.metrics)))
            case "evaluate":
                self.on_evaluation_started(message.evaluate.step)
            case "batches":
                self._changes = tuple(BatchScaleChange(one.id, one.step, one.scale) for one in message.batches.changes)
            case "dump_stacks":
                stacks.dump_stacks(message.dump_stacks.reason)
            case "losses_known":
                self.losses.forget_until(message.losses_known.step)
            case "fleet":
                self.fleet = FleetView.from_proto(message.fleet)
                self.on_fleet(self.fleet)
        with self._changed:
            self._changed.notify_all()
        self.on_message()

    def _make_hello(self) -> pb.Hello:
        return self._hello

    def _make_heartbeat(self) -> pb.Heartbeat:
        seat, now = self._rounds.current, time.monotonic()
        if seat is not None and seat.rank == 0 and now - self._reported_at >= LOSS_REPORT_S:
            self._reported_at = now
            self.report_losses()
        beat = pb.Heartbeat()
        beat.CopyFrom(self._heartbeat)
        beat.seat = seat.id if seat is not None else 0
        if self._watches:
            beat.activity, beat.since_s, beat.still_s, beat.pause = self.activity.sample()
        return beat
