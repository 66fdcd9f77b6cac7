"""A job without a master, told from what it left: spec.json, result.json and events.jsonl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from elasticdl.errors import StateDamaged
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobKind, JobSpec
from elasticdl.spec.directory import JobDirectory, read_json

# Keys of result.json that are fields of a JobStatus too.
_WORDS = ("reason", "output", "best")
_COUNTS = ("step", "total_steps", "records", "total_records", "epoch", "epochs", "round", "exit_code", "shards")
_MORE_COUNTS = (
    "records_per_epoch",
    "loss_step",
    "metrics_step",
    "checkpoint_step",
    "shards_done",
    "global_batch",
    "batch_scale",
    "bad_records",
)
_MEASURES = ("loss", "records_per_s", "started_at", "gradient_square", "gradient_variance", "progress")


def read_events(directory: JobDirectory) -> list[dict[str, Any]]:
    """Every line of the event log. A last line that was cut off by a crash is left out."""
    try:
        return parse_events(directory.events.read_text())
    except FileNotFoundError:
        return []


def parse_events(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        try:
            document = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(document, dict):
            found.append(document)
    return found


def event(document: Mapping[str, Any]) -> pb.EventStatus:
    return pb.EventStatus(
        at=float(document.get("at") or 0.0),
        kind=str(document.get("kind") or ""),
        worker=str(document.get("worker") or ""),
        reason=str(document.get("reason") or ""),
        round=int(document.get("round") or 0),
        step=int(document.get("step") or 0),
        cost_s=float(document.get("cost_s") or 0.0),
    )


def asked(spec: JobSpec, **more: Any) -> pb.JobStatus:
    """A job of which only is known what was asked for, and `more`."""
    return pb.JobStatus(
        name=spec.name,
        kind=spec.kind.value,
        epochs=0 if spec.kind is JobKind.SCRIPT else spec.plan.epochs,
        wished_workers=spec.workers.wish,
        min_workers=spec.workers.min,
        max_workers=spec.workers.max,
        wished_ps=spec.ps.wish or 0,
        strategy=str(spec.strategy),
        ps_mode=str(spec.ps.mode) if spec.ps.wish else "",
        checkpoint_step=-1,
        max_batch_scale=spec.plan.most_scale(spec.plan.global_batch_size),
        **more,
    )


def status(directory: JobDirectory, *, is_alive: bool) -> pb.JobStatus:
    """The job as its files tell it; `is_alive` says whether someone still keeps it going."""
    spec = directory.load_spec()
    result = read_result(directory)
    log = read_events(directory)
    told = asked(
        spec,
        phase=str(result.get("phase") or ("starting" if is_alive else "failed")),
        output=spec.output,
        started_at=directory.spec.stat().st_mtime,
        events=[event(document) for document in log],
    )
    for names, convert in ((_WORDS, str), ((*_COUNTS, *_MORE_COUNTS), int), (_MEASURES, float)):
        for name in names:
            if result.get(name) is not None:
                setattr(told, name, convert(result[name]))
    if result.get("epoch_loss") is not None:
        told.epoch_loss.CopyFrom(pb.EpochLoss(**result["epoch_loss"]))
    told.checkpoint_path = str(result.get("checkpoint") or "")
    for name, value in (result.get("metrics") or {}).items():
        told.metrics[str(name)] = float(value)
    told.bad_record_names.extend(str(name) for name in result.get("bad_record_names") or [])
    told.speeds.extend(pb.SpeedStatus(**one) for one in result.get("speeds") or [])
    told.batch_scales.extend(pb.BatchScale(**one) for one in result.get("batch_scales") or [])
    ended_at = result.get("ended_at")
    if ended_at is None and directory.result.exists():
        ended_at = directory.result.stat().st_mtime
    told.now = float(ended_at or (log[-1].get("at") if log else None) or told.started_at)
    told.workers.extend(_workers(result.get("workers") or [], told.events))
    told.ps.extend(_ps(told.events))
    if not result and not is_alive:
        told.reason = "its processes are gone and left no result; go on with --resume"
    return told


def read_result(directory: JobDirectory) -> dict[str, Any]:
    """What is written of the end; {} where nothing is. Damage is told; the job can be resumed all the same."""
    try:
        return read_json(directory.result) or {}
    except StateDamaged as exc:
        return {"phase": "failed", "reason": f"how it ended is not known: {exc}", "exit_code": 1}


def _workers(written: list[Mapping[str, Any]], events: Any) -> list[pb.WorkerStatus]:
    """As the result lists them, or as the last event of each leaves them."""
    if written:
        return [
            pb.WorkerStatus(
                id=str(worker.get("id", "")),
                pid=int(worker.get("pid") or 0),
                state=str(worker.get("state", "")),
                since=float(worker.get("since") or 0.0),
                rank=int(worker.get("rank", -1)),
                logical_ranks=int(worker.get("logical_ranks") or 0),
                step=int(worker.get("step") or 0),
                host=str(worker.get("host", "")),
                reason=str(worker.get("reason", "")),
            )
            for worker in written
        ]
    # Whoever has no last word in the log ended with the job.
    last = {event.worker: event for event in events if event.kind.startswith("worker-")}
    return [
        pb.WorkerStatus(
            id=name,
            state="lost" if event.kind == "worker-lost" else "left",
            since=event.at,
            rank=-1,
            step=event.step,
            reason=event.reason,
        )
        for name, event in last.items()
    ]


def _ps(events: Any) -> list[pb.PsStatus]:
    """As the last event of each leaves them; whoever has no last word ended with the job."""
    last = {event.worker: event for event in events if event.kind.startswith("ps-")}
    return [
        pb.PsStatus(id=name, state="lost" if event.kind == "ps-lost" else "left", since=event.at, reason=event.reason)
        for name, event in last.items()
    ]
