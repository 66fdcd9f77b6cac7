"""What a master's status says, as the book understands it."""

from __future__ import annotations

from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.scheduler import measured
from elasticdl.scheduler.local.events import Progress, Seen

_GONE = ("left", "lost")


def seen(name: str, status: pb.JobStatus) -> Seen:
    living = sum(worker.state not in _GONE for worker in status.workers)
    return Seen(name, status.now, status.phase, status.wished_workers, living, progress(status))


def progress(status: pb.JobStatus) -> Progress:
    return Progress(
        step=status.step,
        total_steps=status.total_steps,
        remaining_s=_remaining_s(status),
        change_cost_s=_change_cost_s(status),
        speeds=measured.speeds(status),
        noise=measured.noise(status),
        work=status.progress,
        global_batch=status.global_batch,
        batch_scale=_batch_scale(status),
        most_scale=status.max_batch_scale,
    )


def _batch_scale(status: pb.JobStatus) -> int:
    """The newest that was asked for, as it was for its workers: it may still wait for an update."""
    newest = status.batch_scales[-1] if status.batch_scales else None
    return newest.scale if newest is not None and newest.step < 0 else status.batch_scale


def _remaining_s(status: pb.JobStatus) -> float | None:
    left = status.total_records - status.records
    return max(left, 0) / status.records_per_s if status.total_records and status.records_per_s > 0 else None


def _change_cost_s(status: pb.JobStatus) -> float | None:
    """Of the newest change that cost anything, whoever wanted it."""
    costs = [event.cost_s for event in status.events if event.kind.startswith("worker-") and event.cost_s > 0]
    return costs[-1] if costs else None
