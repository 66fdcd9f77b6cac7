"""The master's state machine: events in, actions out. It uses no socket, clock, thread or log.

    machine.handle(event, now) -> actions     handles what happened
    machine.due(now) -> event | None          decides what must happen now; the event is journaled and handled, too

Replaying the journaled events restores the ledger to the bit (`dump_ledger`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter

from elasticdl.master.machine import ending, notices, resume, stalls, training_reports, worker_life
from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import Action, SendMessage
from elasticdl.master.machine.membership import Replica
from elasticdl.master.machine.replica_life import ReplicaLife
from elasticdl.master.machine.state import Ledger, MasterState, Observations, PsObservation, new_ledger, send_message
from elasticdl.master.ps_fleet import ps_events, ps_life, tasks
from elasticdl.master.strategies import batch_changes, leases
from elasticdl.master.strategies.allreduce import AllReduceTraining
from elasticdl.master.strategies.base import JobStrategy
from elasticdl.master.strategies.lease_training import LeaseTraining
from elasticdl.master.strategies.lease_work import LeaseWork
from elasticdl.master.strategies.scripts import ScriptTraining
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobKind, JobSpec

_SEQUENCED_KINDS = frozenset(ev.SequencedEvent.__args__)
_SEQUENCED_PS_KINDS = frozenset(ps_events.SequencedPsEvent.__args__)
_LEDGER_ADAPTER: TypeAdapter[Ledger] = TypeAdapter(Ledger)

EventHandler = Callable[[MasterState, Any, float], list[Action]]


def choose_strategy(spec: JobSpec) -> JobStrategy:
    """The strategy of a job for its whole life. No other code depends on the kind of job."""
    if spec.kind in (JobKind.EVALUATION, JobKind.PREDICTION):
        return LeaseWork()
    if spec.trains_by_leases:
        return LeaseTraining()
    return ScriptTraining() if spec.restarts_script else AllReduceTraining()


class StateMachine:
    """Handles the events of one job and makes its decisions."""

    def __init__(self, spec: JobSpec, logs: str = "logs", initial_snapshot: str = "") -> None:
        self.state = MasterState(spec, choose_strategy(spec), logs, new_ledger(spec), initial_snapshot)

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        """Change the state by `event`; returns the actions to perform."""
        kind = type(event)
        if kind in _SEQUENCED_KINDS:
            return self._handle_once(event, event.worker, self.state.ledger.membership.workers, now)  # type: ignore[union-attr]
        if kind in _SEQUENCED_PS_KINDS:
            return self._handle_once(event, event.ps, self.state.ledger.fleet.ps, now)  # type: ignore[union-attr]
        return self._dispatch(event, now)

    def _dispatch(self, event: ev.Event, now: float) -> list[Action]:
        handler = _HANDLERS.get(type(event))
        if handler is None:  # its handling differs by strategy
            return self.state.strategy.handle(self.state, event, now)
        return handler(self.state, event, now)

    def _handle_once(self, event: Any, sender_id: Any, replicas: Mapping[Any, Replica], now: float) -> list[Action]:
        sender = replicas.get(sender_id)
        if sender is None:
            return []  # no Hello from it yet: do not acknowledge, so that it sends the message again
        actions: list[Action] = []
        if event.sequence > sender.sequence:
            sender.sequence = event.sequence
            actions = self._dispatch(event, now)
        return [*actions, acknowledge(sender_id, sender.sequence)]

    def due(self, now: float) -> ev.Event | None:
        """The next decision at `now`, or None. Handle it, then call this again."""
        return self.state.strategy.due(self.state, now)

    def dump_ledger(self) -> bytes:
        """The ledger as canonical JSON."""
        return _LEDGER_ADAPTER.dump_json(self.state.ledger)

    def load_ledger(self, dumped: bytes) -> None:
        self.state.ledger = _LEDGER_ADAPTER.validate_json(dumped)

    def validate(self) -> None:
        """Assert the invariants of the whole state."""
        ledger = self.state.ledger
        ledger.fleet.validate()
        rounds, workers = ledger.rounds, ledger.membership.workers
        self.state.strategy.validate(self.state)
        assert [change.id for change in ledger.batch_changes] == list(range(1, len(ledger.batch_changes) + 1)), (
            "a change of the batch size is lost"
        )
        assert len({speed.configuration for speed in ledger.speeds}) == len(ledger.speeds), "a configuration twice"
        assert set(rounds.holders) <= set(workers), "an unknown holder"
        assert len(set(rounds.holders)) == len(rounds.holders), "a holder twice"
        for planned in (rounds.newest, rounds.current):
            if planned is None:
                continue
            assert set(planned.workers) <= set(workers), "an unknown member"
            assert sum(member.logical_ranks for member in planned.members) == self.state.spec.plan.logical_ranks
            assert all(member.logical_ranks >= 1 for member in planned.members)
            starts = [member.first_logical_rank for member in planned.members]
            assert starts == [sum(member.logical_ranks for member in planned.members[:i]) for i in range(len(starts))]
        if rounds.newest is not None and rounds.current is not None:
            assert rounds.current.id <= rounds.newest.id, "a round was entered that was never planned"


def acknowledge(replica: Any, sequence: int) -> SendMessage:
    return send_message(replica, acknowledged=pb.Acknowledged(sequence=sequence))


def _on_master_started(job: MasterState, event: ev.MasterStarted, now: float) -> list[Action]:
    ledger = job.ledger
    ledger.master_starts += 1
    job.observed = Observations(watching_since=now)
    if ledger.master_starts == 1:
        ledger.started_at = now
        return [job.add_log_entry(now, "started")]
    for worker in ledger.membership.workers.values():
        worker.is_connected = False
    for ps in ledger.fleet.ps.values():
        ps.is_connected = False
    return [job.add_log_entry(now, "master-restarted", reason=f"process {event.pid}")]


def _on_scale_requested(job: MasterState, event: ev.ScaleRequested, now: float) -> list[Action]:
    actions = worker_life.on_scale_requested(job, event, now) + ps_life.on_scale_requested(job, event, now)
    return actions + batch_changes.on_scale_requested(job, event, now)


def _on_worker_connected(job: MasterState, event: ev.WorkerConnected, now: float) -> list[Action]:
    job.observed.record_heard(event.worker, now, job.spec.timing.heartbeat_timeout_s)
    return worker_life.on_worker_connected(job, event, now)


def _on_heartbeat(job: MasterState, event: ev.HeartbeatReceived, now: float) -> list[Action]:
    job.observed.record_heard(event.worker, now, job.spec.timing.heartbeat_timeout_s)
    job.observed.heartbeats[event.worker] = event
    job.strategy.on_heartbeat(job, event, now)
    return []


def _on_ps_connected(job: MasterState, event: ps_events.PsConnected, now: float) -> list[Action]:
    job.observed.record_heard(event.ps, now, job.spec.timing.heartbeat_timeout_s)
    job.observed.ps[event.ps] = PsObservation(now, event.map_version)
    return ps_life.on_ps_connected(job, event, now)


def _on_ps_heartbeat(job: MasterState, event: ps_events.PsHeartbeatReceived, now: float) -> list[Action]:
    job.observed.record_heard(event.ps, now, job.spec.timing.heartbeat_timeout_s)
    job.observed.ps.setdefault(event.ps, PsObservation(now, 0)).update(event, now)
    return []


_LIFE = ReplicaLife((worker_life.WorkerRole(), ps_life.PsRole()))
_HANDLERS: dict[type, EventHandler] = {
    ev.MasterStarted: _on_master_started,
    ev.JobResumed: resume.on_job_resumed,
    ev.ReplicasListed: _LIFE.on_listed,
    ev.ReplicaStarted: _LIFE.on_started,
    ev.ReplicaExited: _LIFE.on_exited,
    ev.ReplicaDelayed: _LIFE.on_delayed,
    ev.TerminalDetached: ending.on_terminal_detached,
    ev.WorkerConnected: _on_worker_connected,
    ev.SessionLost: _LIFE.on_session_lost,
    ev.WorkerReady: worker_life.on_worker_ready,
    ev.WorkerLeaving: worker_life.on_worker_leaving,
    ev.SnapshotHeld: leases.on_snapshot_held,
    ev.CheckpointWritten: training_reports.on_checkpoint_written,
    ev.WorkerFinished: training_reports.on_worker_finished,
    ev.ModelExported: training_reports.on_model_exported,
    ev.NoticeReported: notices.on_notice_reported,
    ev.BadRecordFound: notices.on_bad_record_found,
    ev.WorkerFailed: worker_life.on_worker_failed,
    ev.WorkerSaidGoodbye: worker_life.on_worker_said_goodbye,
    ev.DataPlanReported: training_reports.on_plan_reported,
    ev.BatchScaled: batch_changes.on_batch_scaled,
    ev.LossesReported: training_reports.on_losses_reported,
    ev.StallNoticed: stalls.on_stall_noticed,
    ev.StallEnded: stalls.on_stall_ended,
    ev.WorkerStalled: stalls.on_worker_stalled,
    ev.ExchangeReceived: leases.on_exchange_received,
    ev.HeartbeatReceived: _on_heartbeat,
    ps_events.PsConnected: _on_ps_connected,
    ps_events.PsHeartbeatReceived: _on_ps_heartbeat,
    ps_events.PsLeaving: ps_life.on_ps_leaving,
    ps_events.TaskReported: tasks.on_task_reported,
    ps_events.PsFailed: ps_life.on_ps_failed,
    ps_events.PsSaidGoodbye: ps_life.on_ps_said_goodbye,
    ev.ScaleRequested: _on_scale_requested,
    ev.StopRequested: ending.on_stop_requested,
    ev.ReplicaLaunched: _LIFE.on_launched,
    ev.ReplicaFellSilent: _LIFE.on_fell_silent,
    ev.WorkerReturned: worker_life.on_worker_returned,
    ev.LeaveOverdue: worker_life.on_leave_overdue,
    ev.LeaseExpired: leases.on_lease_expired,
    ev.ProgressRecorded: training_reports.on_progress_recorded,
    ev.ExportRequested: ending.on_export_requested,
    ps_events.PsStallNoticed: ps_life.on_ps_stall_noticed,
    ps_events.PsStalled: ps_life.on_ps_stalled,
    ps_events.BackupBroken: tasks.on_backup_broken,
    ps_events.PsDrained: ps_life.on_ps_drained,
    ps_events.SlotsAssigned: tasks.on_slots_assigned,
    ps_events.TaskAssigned: tasks.on_task_assigned,
    ps_events.TaskResolved: tasks.on_task_resolved,
    ev.JobEnded: ending.on_job_ended,
}
