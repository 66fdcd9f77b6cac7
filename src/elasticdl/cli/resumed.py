"""What a job that was resumed had before: how far it was, what it measured, what happened.

A resumed job begins with a fresh master; what its earlier runs left lies in `previous-1`, `previous-2`, … of its
directory. Without this, a job of many hours would look as if it began at zero until its first step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticdl.cli import history, words
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec.directory import JobDirectory, read_json

RESUMED = "resumed"


@dataclass(frozen=True, slots=True)
class Earlier:
    """The newest of the earlier runs that left a checkpoint: its step, and the run's result as far as there is one."""

    step: int
    result: dict[str, Any]
    epochs: int = 0  # that were planned

    def sentence(self) -> str:
        """from step 1,177 of 4,800, loss 0.0034, best loss 0.1015 at step 636"""
        total = int(self.result.get("total_steps") or 0)
        parts = [f"from step {self.step:,}" + (f" of {total:,}" if total else "")]
        if self.step == self.result.get("step") and self.result.get("loss") is not None:
            parts.append(f"loss {self.result['loss']:.4f}")
        if self.result.get("best"):
            parts.append(f"best {self.result['best']}")
        return ", ".join(parts)


def read_earlier(directory: JobDirectory) -> Earlier | None:
    """None for a job that was never resumed, or none of whose runs left a checkpoint."""
    for run in reversed(directory.earlier_runs()):
        result = history.read_result(run)
        # A run that was killed has no result that tells it.
        noted = [int(one.get("step") or 0) for one in history.read_events(run) if one.get("kind") == "checkpoint"]
        step = int(result.get("checkpoint_step") or max(noted, default=0))
        if step > 0:
            plan = (read_json(run.spec) or {}).get("plan") or {}
            return Earlier(step, result, int(plan.get("epochs") or 0))
    return None


def read_events(directory: JobDirectory) -> list[pb.EventStatus]:
    """Those of all runs of the job, the oldest first."""
    return [
        history.event(document)
        for run in (*directory.earlier_runs(), directory)
        for document in history.read_events(run)
    ]


def with_earlier(status: pb.JobStatus, earlier: Earlier | None) -> pb.JobStatus:
    """`status` with what the job had, wherever this run knows nothing better yet. Changes `status`.

    A run that is over is left as it is if it trained anything.
    """
    if earlier is None or (status.phase in words.OVER and status.step > earlier.step):
        return status
    result = earlier.result
    has_ended_there = earlier.step == result.get("step")  # else nobody knows what the checkpoint had seen
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
    if not any(event.kind == RESUMED for event in status.events):
        event = pb.EventStatus(at=status.started_at, kind=RESUMED, reason=earlier.sentence(), step=earlier.step)
        status.events.insert(0, event)
    return status
