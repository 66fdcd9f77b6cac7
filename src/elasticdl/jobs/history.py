"""The status, events and evaluations of a job without a master, and those of its earlier runs, read from files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticdl.errors import StateDamaged
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobKind, JobSpec, Phase
from elasticdl.spec.directory import JobDirectory, read_json

# Keys of result.json that are fields of a JobStatus too.
_TEXT_FIELDS = ("reason", "output", "best")
_COUNT_FIELDS = ("step", "total_steps", "records", "total_records", "epoch", "epochs", "round", "exit_code", "shards")
_MORE_COUNT_FIELDS = (
    "records_per_epoch",
    "loss_step",
    "metrics_step",
    "checkpoint_step",
    "shards_done",
    "global_batch",
    "batch_scale",
    "bad_records",
)
_FLOAT_FIELDS = ("loss", "records_per_s", "started_at", "gradient_square", "gradient_variance", "progress")


def read_events(directory: JobDirectory) -> list[dict[str, Any]]:
    """Every line of the event log. A last line that was cut off by a crash is left out."""
    try:
        return parse_events(directory.events.read_text())
    except FileNotFoundError:
        return []


def parse_events(text: str) -> list[dict[str, Any]]:
    documents = []
    for line in text.splitlines():
        try:
            document = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(document, dict):
            documents.append(document)
    return documents


def event_status(document: Mapping[str, Any]) -> pb.EventStatus:
    return pb.EventStatus(
        at=float(document.get("at") or 0.0),
        kind=str(document.get("kind") or ""),
        replica=str(document.get("replica") or ""),
        reason=str(document.get("reason") or ""),
        round=int(document.get("round") or 0),
        step=int(document.get("step") or 0),
        cost_s=float(document.get("cost_s") or 0.0),
        metrics={str(name): float(value) for name, value in (document.get("metrics") or {}).items()},
    )


def requested_status(spec: JobSpec, **more: Any) -> pb.JobStatus:
    """The status of a job of which only the description is known, and `more`."""
    return pb.JobStatus(
        name=spec.name,
        kind=spec.kind.value,
        epochs=0 if spec.kind is JobKind.SCRIPT else spec.plan.epochs,
        desired_workers=spec.workers.replicas,
        min_workers=spec.workers.min,
        max_workers=spec.workers.max,
        desired_ps=spec.ps.replicas or 0,
        strategy=str(spec.strategy),
        ps_mode=str(spec.ps.mode) if spec.ps.replicas else "",
        checkpoint_step=-1,
        max_batch_scale=spec.plan.max_scale(spec.plan.global_batch_size),
        **more,
    )


def status_from_files(directory: JobDirectory, *, is_alive: bool) -> pb.JobStatus:
    """The status from the files of a job; `is_alive` says whether its launcher or master still runs."""
    spec = directory.load_spec()
    result = read_result(directory)
    log = read_events(directory)
    status = requested_status(
        spec,
        phase=str(result.get("phase") or ("starting" if is_alive else "failed")),
        output=spec.output,
        started_at=directory.spec.stat().st_mtime,
        events=[event_status(document) for document in log],
    )
    for names, convert in ((_TEXT_FIELDS, str), ((*_COUNT_FIELDS, *_MORE_COUNT_FIELDS), int), (_FLOAT_FIELDS, float)):
        for name in names:
            if result.get(name) is not None:
                setattr(status, name, convert(result[name]))
    if result.get("epoch_loss") is not None:
        status.epoch_loss.CopyFrom(pb.EpochLoss(**result["epoch_loss"]))
    status.checkpoint_path = str(result.get("checkpoint") or "")
    for name, value in (result.get("metrics") or {}).items():
        status.metrics[str(name)] = float(value)
    status.bad_record_names.extend(str(name) for name in result.get("bad_record_names") or [])
    status.speeds.extend(pb.SpeedStatus(**speed) for speed in result.get("speeds") or [])
    status.batch_scales.extend(pb.BatchScale(**scale) for scale in result.get("batch_scales") or [])
    ended_at = result.get("ended_at")
    if ended_at is None and directory.result.exists():
        ended_at = directory.result.stat().st_mtime
    status.now = float(ended_at or (log[-1].get("at") if log else None) or status.started_at)
    status.workers.extend(_worker_statuses(result.get("workers") or [], status.events))
    status.ps.extend(_ps_statuses(status.events))
    if not result and not is_alive:
        status.reason = "its processes are gone and left no result; go on with --resume"
    return status


def read_result(directory: JobDirectory) -> dict[str, Any]:
    """Reads the result; {} if there is none. A damaged one is a failure that says so: the job can still be resumed."""
    try:
        return read_json(directory.result) or {}
    except StateDamaged as exc:
        return {"phase": "failed", "reason": f"its result cannot be read: {exc}", "exit_code": 1}


def _worker_statuses(written: list[Mapping[str, Any]], events: Any) -> list[pb.WorkerStatus]:
    """The workers of the result, or else their states after the last event of each."""
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
    # A worker without a last event in the log ended with the job.
    last = {event.replica: event for event in events if event.kind.startswith("worker-")}
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


def _ps_statuses(events: Any) -> list[pb.PsStatus]:
    """The state after the last event of each ps; one without a last event ended with the job."""
    last = {event.replica: event for event in events if event.kind.startswith("ps-")}
    return [
        pb.PsStatus(id=name, state="lost" if event.kind == "ps-lost" else "left", since=event.at, reason=event.reason)
        for name, event in last.items()
    ]


RESUMED_EVENT = "resumed"


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """The newest of the earlier runs that left a checkpoint: its step, and the run's result as far as there is one."""

    step: int
    result: dict[str, Any]
    epochs: int = 0  # that were planned

    def describe(self) -> str:
        """from step 1,177 of 4,800, loss 0.0034, best loss 0.1015 at step 636"""
        total = int(self.result.get("total_steps") or 0)
        parts = [f"from step {self.step:,}" + (f" of {total:,}" if total else "")]
        if self.step == self.result.get("step") and self.result.get("loss") is not None:
            parts.append(f"loss {self.result['loss']:.4f}")
        if self.result.get("best"):
            parts.append(f"best {self.result['best']}")
        return ", ".join(parts)


def read_earlier_run(directory: JobDirectory) -> EarlierRun | None:
    """The newest earlier run with a checkpoint; None if there is none."""
    for run in reversed(directory.previous_runs()):
        result = read_result(run)
        # A run that was killed has no result that tells it.
        noted = [int(event.get("step") or 0) for event in read_events(run) if event.get("kind") == "checkpoint"]
        step = int(result.get("checkpoint_step") or max(noted, default=0))
        if step > 0:
            plan = (read_json(run.spec) or {}).get("plan") or {}
            return EarlierRun(step, result, int(plan.get("epochs") or 0))
    return None


def read_events_of_all_runs(directory: JobDirectory) -> list[pb.EventStatus]:
    """The events of all runs of the job, the oldest first."""
    return [event_status(document) for run in (*directory.previous_runs(), directory) for document in read_events(run)]


def add_earlier_run(status: pb.JobStatus, earlier: EarlierRun | None) -> pb.JobStatus:
    """Adds to `status` what the earlier run had, where this run knows nothing newer. Changes `status`.

    A run that is over is left as it is if it trained anything.
    """
    if earlier is None or (Phase(status.phase).is_over and status.step > earlier.step):
        return status
    result = earlier.result
    has_ended_there = earlier.step == result.get(
        "step"
    )  # else it is not known how many records the checkpoint had seen
    if status.step == 0:
        status.step, status.checkpoint_step = earlier.step, earlier.step
        status.checkpoint_path = status.checkpoint_path or str(result.get("checkpoint") or "")
        # The job may have been resumed for more epochs than it had.
        stretch = status.epochs / earlier.epochs if status.epochs and earlier.epochs else 1.0
        status.total_steps = status.total_steps or round(int(result.get("total_steps") or 0) * stretch)
        status.total_records = status.total_records or round(int(result.get("total_records") or 0) * stretch)
        status.records_per_epoch = status.records_per_epoch or int(result.get("records_per_epoch") or 0)
        if has_ended_there:
            status.records = int(result.get("records") or 0)
            if status.total_records:
                status.epoch = status.records * status.epochs // status.total_records
    if status.step == earlier.step and not status.loss_step and has_ended_there and result.get("loss") is not None:
        status.loss, status.loss_step = float(result["loss"]), earlier.step
    if not status.metrics:
        for name, value in (result.get("metrics") or {}).items():
            status.metrics[str(name)] = float(value)
        status.metrics_step = int(result.get("metrics_step") or 0)
        status.best = status.best or str(result.get("best") or "")
    if not any(event.kind == RESUMED_EVENT for event in status.events):
        event = pb.EventStatus(at=status.started_at, kind=RESUMED_EVENT, reason=earlier.describe(), step=earlier.step)
        status.events.insert(0, event)
    return status


EVALUATION_EVENT = "evaluation"


@dataclass(frozen=True, slots=True)
class LoggedEvaluation:
    finished_at: float  # when it was over
    step: int
    metrics: Mapping[str, float]


def read_evaluations(events: Iterable[Mapping[str, Any]]) -> list[LoggedEvaluation]:
    """Sorts evaluations by step. A resumed job may evaluate a step again; then the last result counts.

    Unfinished evaluations have no metrics and are left out.
    """
    by_step: dict[int, LoggedEvaluation] = {}
    for event in events:
        if event.get("kind") != EVALUATION_EVENT:
            continue
        values = {str(name): float(value) for name, value in (event.get("metrics") or {}).items()}
        metrics = {name: value for name, value in values.items() if math.isfinite(value)}
        if metrics:
            step = int(event.get("step") or 0)
            by_step[step] = LoggedEvaluation(float(event.get("at") or 0.0), step, metrics)
    return [by_step[step] for step in sorted(by_step)]
