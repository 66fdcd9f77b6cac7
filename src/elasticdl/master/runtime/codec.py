"""Converts events to records of the journal and back, and messages of replicas to events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from elasticdl.errors import SpecError
from elasticdl.master.machine import events as ev
from elasticdl.master.machine.membership import LeaseReply
from elasticdl.master.machine.phase import Outcome
from elasticdl.master.ps_fleet import ps_events
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec.ids import PsId, WorkerId
from elasticdl.spec.phase import Phase

_to_json = json.JSONEncoder(separators=(",", ":")).encode
_EVENT_KINDS: dict[str, type] = {kind.__name__: kind for kind in ev.Event.__args__}


def encode_event(event: ev.Event, now: float) -> bytes:
    """An event as a compact JSON array: its time, its name and its fields in order."""
    return _to_json([now, type(event).__name__, event]).encode()


class UnknownEvent(ValueError):
    """The record is no event of this version: it has an unknown name, or too many fields."""


def decode_event(payload: bytes) -> tuple[ev.Event, float]:
    """The event and its time. Missing fields get their defaults. Raises UnknownEvent for one of another version."""
    try:
        now, name, fields = json.loads(payload)
        kind = _EVENT_KINDS[name]
        event = _NESTED_DECODERS[kind](fields) if kind in _NESTED_DECODERS else kind(*fields)
        return event, float(now)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as exc:
        raise UnknownEvent(f"the event {payload[:200].decode(errors='replace')} ({exc!r})") from exc


def _decode_exchange(fields: list[Any]) -> ev.ExchangeReceived:
    worker, request, reports, max_leases, steps = fields
    return ev.ExchangeReceived(
        worker, request, tuple([_decode_lease_report(*report) for report in reports]), max_leases, tuple(steps)
    )


def _decode_lease_report(lease: int, done: int, finished: bool, failure: str, sums: list[Any]) -> ev.LeaseReport:
    parts = tuple([(metric, tuple(values), weight) for metric, values, weight in sums])
    return ev.LeaseReport(lease, done, finished, failure, parts)


def _decode_replicas_listed(fields: list[Any]) -> ev.ReplicasListed:
    running, exits = fields
    return ev.ReplicasListed(
        tuple((replica, pid) for replica, pid in running), tuple(ev.ReplicaExit(*exit_fields) for exit_fields in exits)
    )


def _decode_round_planned(fields: list[Any]) -> ev.RoundPlanned:
    round_id, members, is_forced, reason = fields
    return ev.RoundPlanned(round_id, tuple(ev.RankAssignment(*member) for member in members), is_forced, reason)


def _decode_task(fields: list[Any]) -> ps_events.TaskAssigned:
    kind, version, performer, peer, slots, directory = fields
    return ps_events.TaskAssigned(kind, version, performer, peer, tuple(slots), directory)


def _decode_losses(fields: list[Any]) -> ev.LossesReported:
    worker, sequence, until, points, epochs = fields
    return ev.LossesReported(
        worker,
        sequence,
        until,
        tuple([tuple(point) for point in points]),
        tuple([ev.EpochLoss(*epoch) for epoch in epochs]),
    )


def _decode_worker_finished(fields: list[Any]) -> ev.WorkerFinished:
    event = ev.WorkerFinished(*fields)
    return event._replace(epoch=ev.EpochLoss(*event.epoch)) if event.epoch is not None else event


def _decode_job_ended(fields: list[Any]) -> ev.JobEnded:
    event = ev.JobEnded(*fields)
    return event._replace(phase=cast(Outcome, Phase(event.phase)))


_NESTED_DECODERS: dict[type, Callable[[list[Any]], ev.Event]] = {
    ev.ExchangeReceived: _decode_exchange,
    ev.LossesReported: _decode_losses,
    ev.WorkerFinished: _decode_worker_finished,
    ev.JobEnded: _decode_job_ended,
    ev.ReplicasListed: _decode_replicas_listed,
    ev.ReplicaExited: lambda fields: ev.ReplicaExited(ev.ReplicaExit(*fields[0])),
    ev.RoundPlanned: _decode_round_planned,
    ev.RoundStalled: lambda fields: ev.RoundStalled(fields[0], tuple(fields[1]), fields[2]),
    ps_events.SlotsAssigned: lambda fields: ps_events.SlotsAssigned(tuple(fields[0]), tuple(fields[1])),
    ps_events.TaskAssigned: _decode_task,
}


def event_from_worker(worker: WorkerId, message: pb.WorkerMessage) -> ev.Event | None:
    """The event for a worker's message; None if this master does not know it. Raises SpecError if it is malformed."""
    number = message.sequence
    match message.WhichOneof("message"):
        case "hello":
            return _worker_connected(worker, message.hello)
        case "heartbeat":
            return _heartbeat_received(worker, message.heartbeat)
        case "batch_scaled":
            change = message.batch_scaled
            return ev.BatchScaled(worker, number, change.change, change.step, change.scale)
        case "ready":
            return ev.WorkerReady(worker, number, message.ready.store_address)
        case "round_failed":
            failed = message.round_failed
            return ev.RoundFailed(worker, number, failed.round, failed.reason, failed.donor)
        case "round_entered":
            entered = message.round_entered
            return ev.RoundEntered(worker, number, entered.round, entered.step, entered.gap_s)
        case "leaving":
            return ev.WorkerLeaving(worker, number, message.leaving.reason)
        case "snapshot":
            return ev.SnapshotHeld(worker, number, message.snapshot.step)
        case "checkpoint":
            checkpoint = message.checkpoint
            return ev.CheckpointWritten(
                worker, number, checkpoint.step, checkpoint.path, checkpoint.seconds, checkpoint.copy_s
            )
        case "finished":
            return _worker_finished(worker, number, message.finished)
        case "loss_report":
            return _losses_reported(worker, number, message.loss_report)
        case "exported":
            return ev.ModelExported(worker, number, message.exported.path)
        case "notice":
            notice = message.notice
            return ev.NoticeReported(worker, number, notice.kind, notice.reason, notice.step)
        case "bad_record":
            bad_record = message.bad_record
            return ev.BadRecordFound(worker, number, bad_record.source, bad_record.record, bad_record.reason)
        case "failure":
            failure = message.failure
            return ev.WorkerFailed(worker, number, failure.message, failure.wrong_job, failure.permanent)
        case "goodbye":
            return ev.WorkerSaidGoodbye(worker, number, message.goodbye.reason)
        case "data_plan":
            return _data_plan_reported(worker, number, message.data_plan)
    return None


def _worker_connected(worker: WorkerId, hello: pb.Hello) -> ev.WorkerConnected:
    return ev.WorkerConnected(
        worker,
        pid=hello.pid,
        host=hello.host,
        store_address=hello.store_address,
        peer_address=hello.peer_address,
        round=hello.round,
        step=hello.step,
        ready=hello.ready,
        leaving=hello.leaving,
        cpu_capability=hello.cpu_capability,
    )


def _heartbeat_received(worker: WorkerId, heartbeat: pb.Heartbeat) -> ev.HeartbeatReceived:
    return ev.HeartbeatReceived(
        worker,
        heartbeat.round,
        heartbeat.step,
        heartbeat.records,
        heartbeat.loss,
        heartbeat.step_s,
        heartbeat.compute_s,
        heartbeat.learning_rate,
        timed_steps=heartbeat.timed_steps,
        one_pass_step_s=heartbeat.one_pass_step_s,
        pass_s=heartbeat.pass_s,
        gradient_square=heartbeat.gradient_square,
        gradient_variance=heartbeat.gradient_variance,
        progress=heartbeat.progress,
        batch_scale=heartbeat.batch_scale or 1,
        activity=heartbeat.activity,
        activity_s=heartbeat.activity_s,
        blocked_s=heartbeat.blocked_s,
        pause_reason=heartbeat.pause_reason,
        slow_step_s=heartbeat.slow_step_s,
        joined_round=heartbeat.joined_round,
    )


def _worker_finished(worker: WorkerId, number: int, finished: pb.Finished) -> ev.WorkerFinished:
    return ev.WorkerFinished(
        worker,
        number,
        finished.step,
        finished.records,
        finished.reason,
        finished.progress,
        finished.loss if finished.HasField("loss") else None,
        _epoch_loss(finished.epoch) if finished.HasField("epoch") else None,
    )


def _losses_reported(worker: WorkerId, number: int, report: pb.LossReport) -> ev.LossesReported:
    columns = report.step, report.loss, report.learning_rate, report.records
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise SpecError(f"loss_report: expected columns of the same length, received the lengths {lengths}")
    points = tuple(zip(*columns, strict=True))
    return ev.LossesReported(worker, number, report.until, points, tuple(map(_epoch_loss, report.epochs)))


def _data_plan_reported(worker: WorkerId, number: int, plan: pb.DataPlan) -> ev.DataPlanReported:
    return ev.DataPlanReported(
        worker,
        number,
        plan.total_steps,
        plan.total_records,
        plan.records_per_epoch,
        plan.steps_per_epoch,
        plan.validation_records,
        plan.best_metric,
        plan.lower_is_better,
        _decode_text(plan.progress),
        plan.global_batch,
    )


def _epoch_loss(message: pb.EpochLoss) -> ev.EpochLoss:
    return ev.EpochLoss(message.epoch, message.step, message.loss, message.records)


def _decode_text(received: bytes) -> str:
    try:
        return received.decode()
    except UnicodeDecodeError as exc:
        raise SpecError(f"data_plan.progress: expected JSON, received {received!r:.80}") from exc


def event_from_ps(ps: PsId, message: pb.WorkerMessage) -> ev.Event | None:
    """The event for the message of a ps; None if this master does not know it."""
    number = message.sequence
    match message.WhichOneof("message"):
        case "hello":
            hello = message.hello
            return ps_events.PsConnected(ps, hello.pid, hello.host, hello.ps_address, hello.map_version, hello.leaving)
        case "ps_heartbeat":
            return _ps_heartbeat_received(ps, message.ps_heartbeat)
        case "task_report":
            report = message.task_report
            return ps_events.TaskReported(
                ps, number, report.version, report.rows, report.pause_s, report.rolled_back, report.failure
            )
        case "leaving":
            return ps_events.PsLeaving(ps, number, message.leaving.reason)
        case "failure":
            failure = message.failure
            return ps_events.PsFailed(ps, number, failure.message, failure.wrong_job, failure.permanent)
        case "goodbye":
            return ps_events.PsSaidGoodbye(ps, number, message.goodbye.reason)
    return None


def _ps_heartbeat_received(ps: PsId, heartbeat: pb.PsHeartbeat) -> ps_events.PsHeartbeatReceived:
    return ps_events.PsHeartbeatReceived(
        ps,
        heartbeat.map_version,
        heartbeat.rows,
        heartbeat.bytes,
        heartbeat.requests,
        heartbeat.applied,
        heartbeat.repeated,
        heartbeat.refused,
        heartbeat.malformed,
        heartbeat.lock_wait_s,
        tuple(heartbeat.staleness),
        heartbeat.clock,
        heartbeat.backup_failure,
        heartbeat.busy_s,
    )


def event_from_exchange(request: pb.ExchangeRequest) -> ev.ExchangeReceived:
    reports = []
    for report in request.reports:
        parts = tuple((name, tuple(part.values), part.weight) for name, part in sorted(report.sums.items()))
        reports.append(ev.LeaseReport(report.lease, report.done, report.finished, report.failure, parts))
    worker = WorkerId(request.worker)
    return ev.ExchangeReceived(worker, request.request, tuple(reports), request.max_leases, tuple(request.steps))


def exchange_reply(lease_reply: LeaseReply | None) -> pb.ExchangeReply:
    if lease_reply is None:
        return pb.ExchangeReply()
    reply = pb.ExchangeReply(drained=lease_reply.is_drained)
    for source, step, lease in lease_reply.leases:
        reply.leases.add(
            id=lease.id,
            source=source,
            shard=lease.shard,
            start=lease.start,
            stop=lease.stop,
            step=step,
            done=lease.done,
            lane=lease.lane,
            number=lease.number,
        )
    return reply
