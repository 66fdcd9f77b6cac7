"""Events as bytes of the journal, and messages of the wire as events."""

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
    """One event as a compact JSON array: when, what, and its fields in order."""
    return _to_json([now, type(event).__name__, event]).encode()


class UnknownEvent(ValueError):
    """No event of this version: it has another name, or more fields."""


def decode_event(payload: bytes) -> tuple[ev.Event, float]:
    """The event and when it was; fields that are newer than the journal have their defaults. UnknownEvent."""
    try:
        now, name, fields = json.loads(payload)
        kind = _EVENT_KINDS[name]
        event = _NESTED_DECODERS[kind](fields) if kind in _NESTED_DECODERS else kind(*fields)
        return event, float(now)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as exc:
        raise UnknownEvent(f"the event {payload[:200].decode(errors='replace')} ({exc!r})") from exc


def _decode_exchange(fields: list[Any]) -> ev.ExchangeReceived:
    worker, request, reports, want, steps = fields
    return ev.ExchangeReceived(
        worker, request, tuple([_decode_report(*report) for report in reports]), want, tuple(steps)
    )


def _decode_report(lease: int, done: int, finished: bool, failure: str, sums: list[Any]) -> ev.LeaseReport:
    parts = tuple([(metric, tuple(values), weight) for metric, values, weight in sums])
    return ev.LeaseReport(lease, done, finished, failure, parts)


def _decode_replicas_listed(fields: list[Any]) -> ev.ReplicasListed:
    running, exited = fields
    return ev.ReplicasListed(
        tuple((replica, pid) for replica, pid in running), tuple(ev.ReplicaExit(*one) for one in exited)
    )


def _decode_round_planned(fields: list[Any]) -> ev.RoundPlanned:
    number, seats, forced, reason = fields
    return ev.RoundPlanned(number, tuple(ev.RankAssignment(*seat) for seat in seats), forced, reason)


def _decode_task(fields: list[Any]) -> ps_events.TaskAssigned:
    kind, version, performer, other, slots, directory = fields
    return ps_events.TaskAssigned(kind, version, performer, other, tuple(slots), directory)


def _decode_losses(fields: list[Any]) -> ev.LossesReported:
    worker, sequence, until, points, epochs = fields
    return ev.LossesReported(
        worker,
        sequence,
        until,
        tuple([tuple(point) for point in points]),
        tuple([ev.EpochLoss(*one) for one in epochs]),
    )


def _decode_worker_finished(fields: list[Any]) -> ev.WorkerFinished:
    event = ev.WorkerFinished(*fields)
    return event._replace(epoch=ev.EpochLoss(*event.epoch)) if event.epoch is not None else event


def _decode_job_ended(fields: list[Any]) -> ev.JobEnded:
    event = ev.JobEnded(*fields)
    return event._replace(phase=cast(Outcome, Phase(event.phase)))


def _epoch_loss(message: pb.EpochLoss) -> ev.EpochLoss:
    return ev.EpochLoss(message.epoch, message.step, message.loss, message.records)


def _decode_text(received: bytes) -> str:
    try:
        return received.decode()
    except UnicodeDecodeError as exc:
        raise SpecError(f"planned.progress: expected JSON, received {received!r:.80}") from exc


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
    """The event a worker's message means; None for one this master does not know. SpecError where it means nothing."""
    kind = message.WhichOneof("message")
    number = message.sequence
    match kind:
        case "hello":
            said = message.hello
            return ev.WorkerConnected(
                worker,
                pid=said.pid,
                host=said.host,
                store_address=said.store_address,
                peer_address=said.peer_address,
                round=said.round,
                step=said.step,
                ready=said.ready,
                leaving=said.leaving,
                cpu_capability=said.cpu_capability,
            )
        case "heartbeat":
            beat = message.heartbeat
            return ev.HeartbeatReceived(
                worker,
                beat.round,
                beat.step,
                beat.records,
                beat.loss,
                beat.step_s,
                beat.compute_s,
                beat.learning_rate,
                timed_steps=beat.timed_steps,
                one_pass_step_s=beat.one_pass_step_s,
                pass_s=beat.pass_s,
                gradient_square=beat.gradient_square,
                gradient_variance=beat.gradient_variance,
                progress=beat.progress,
                batch_scale=beat.batch_scale or 1,
                activity=beat.activity,
                since_s=beat.since_s,
                still_s=beat.still_s,
                pause=beat.pause,
                slow_step_s=beat.slow_step_s,
                joined_round=beat.joined_round,
            )
        case "batch_scaled":
            change = message.batch_scaled
            return ev.BatchScaled(worker, number, change.change, change.step, change.scale)
        case "ready":
            return ev.WorkerReady(worker, number, message.ready.store_address)
        case "round_failed":
            return ev.RoundFailed(
                worker, number, message.round_failed.round, message.round_failed.why, message.round_failed.donor
            )
        case "entered":
            entered = message.entered
            return ev.RoundEntered(worker, number, entered.round, entered.step, entered.gap_s)
        case "leaving":
            return ev.WorkerLeaving(worker, number, message.leaving.reason)
        case "snapshot":
            return ev.SnapshotHeld(worker, number, message.snapshot.step)
        case "checkpoint":
            done = message.checkpoint
            return ev.CheckpointWritten(worker, number, done.step, done.path, done.seconds, done.copy_s)
        case "finished":
            last = message.finished
            return ev.WorkerFinished(
                worker,
                number,
                last.step,
                last.records,
                last.why,
                last.progress,
                last.loss if last.HasField("loss") else None,
                _epoch_loss(last.epoch) if last.HasField("epoch") else None,
            )
        case "losses":
            curve = message.losses
            columns = curve.step, curve.loss, curve.learning_rate, curve.records
            if len({len(column) for column in columns}) > 1:
                raise SpecError(f"losses: expected as many of each, received {[len(column) for column in columns]}")
            points = tuple(zip(*columns, strict=True))
            return ev.LossesReported(worker, number, curve.until, points, tuple(map(_epoch_loss, curve.epochs)))
        case "exported":
            return ev.ModelExported(worker, number, message.exported.path)
        case "notice":
            notice = message.notice
            return ev.NoticeReported(worker, number, notice.kind, notice.reason, notice.step)
        case "bad_record":
            bad = message.bad_record
            return ev.BadRecordFound(worker, number, bad.source, bad.record, bad.why)
        case "failure":
            failure = message.failure
            return ev.WorkerFailed(worker, number, failure.message, failure.wrong_job, failure.permanent)
        case "goodbye":
            return ev.WorkerSaidGoodbye(worker, number, message.goodbye.reason)
        case "planned":
            plan = message.planned
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
    return None


def event_from_ps(ps: PsId, message: pb.WorkerMessage) -> ev.Event | None:
    """The event a ps' message means; None for one this master does not know."""
    number = message.sequence
    match message.WhichOneof("message"):
        case "hello":
            said = message.hello
            return ps_events.PsConnected(ps, said.pid, said.host, said.ps_address, said.map_version, said.leaving)
        case "ps_heartbeat":
            beat = message.ps_heartbeat
            return ps_events.PsHeartbeatReceived(
                ps,
                beat.map_version,
                beat.rows,
                beat.bytes,
                beat.requests,
                beat.applied,
                beat.repeated,
                beat.refused,
                beat.malformed,
                beat.lock_wait_s,
                tuple(beat.staleness),
                beat.clock,
                beat.mirror_failure,
                beat.busy_s,
            )
        case "task_report":
            done = message.task_report
            return ps_events.TaskReported(
                ps, number, done.version, done.rows, done.pause_s, done.rolled_back, done.failure
            )
        case "leaving":
            return ps_events.PsLeaving(ps, number, message.leaving.reason)
        case "failure":
            failure = message.failure
            return ps_events.PsFailed(ps, number, failure.message, failure.wrong_job, failure.permanent)
        case "goodbye":
            return ps_events.PsSaidGoodbye(ps, number, message.goodbye.reason)
    return None


def event_from_exchange(request: pb.ExchangeRequest) -> ev.ExchangeReceived:
    reports = []
    for report in request.reports:
        parts = tuple((name, tuple(part.values), part.weight) for name, part in sorted(report.sums.items()))
        reports.append(ev.LeaseReport(report.lease, report.done, report.finished, report.failure, parts))
    worker = WorkerId(request.worker)
    return ev.ExchangeReceived(worker, request.request, tuple(reports), request.max_leases, tuple(request.steps))


def exchange_reply(answer: LeaseReply | None) -> pb.ExchangeReply:
    if answer is None:
        return pb.ExchangeReply()
    reply = pb.ExchangeReply(drained=answer.is_drained)
    for source, step, lease in answer.leases:
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
