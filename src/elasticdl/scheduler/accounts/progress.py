"""Converts a master's JobStatus message into progress, speed samples and gradient noise."""

from __future__ import annotations

import math

from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.scheduler.accounts.events import JobProgress, JobStatusReported
from elasticdl.scheduler.interface import BatchConfig
from elasticdl.scheduler.snapshot import GradientNoise, SpeedSample

_DEAD_WORKER_STATES = ("left", "lost")


def parse_status_event(name: str, status: pb.JobStatus) -> JobStatusReported:
    live_workers = sum(worker.state not in _DEAD_WORKER_STATES for worker in status.workers)
    return JobStatusReported(
        name, status.now, status.phase, status.desired_workers, live_workers, parse_progress(status)
    )


def parse_progress(status: pb.JobStatus) -> JobProgress:
    return JobProgress(
        step=status.step,
        total_steps=status.total_steps,
        remaining_s=_remaining_s(status),
        change_cost_s=_change_cost_s(status),
        speeds=parse_speed_samples(status),
        noise=parse_gradient_noise(status),
        work_done=status.progress,
        global_batch=status.global_batch,
        batch_scale=_latest_batch_scale(status),
        max_batch_scale=status.max_batch_scale,
    )


def _latest_batch_scale(status: pb.JobStatus) -> int:
    """Returns the most recently requested batch scale, which may still wait for an update."""
    newest = status.batch_scales[-1] if status.batch_scales else None
    return newest.scale if newest is not None and newest.step < 0 else status.batch_scale


def _remaining_s(status: pb.JobStatus) -> float | None:
    left = status.total_records - status.records
    return max(left, 0) / status.records_per_s if status.total_records and status.records_per_s > 0 else None


def _change_cost_s(status: pb.JobStatus) -> float | None:
    """Returns the cost of the most recent change that cost anything."""
    costs = [event.cost_s for event in status.events if event.kind.startswith("worker-") and event.cost_s > 0]
    return costs[-1] if costs else None


def parse_speed_samples(status: pb.JobStatus, kind: str = "") -> tuple[SpeedSample, ...]:
    """Returns a sample for each placement, on devices of `kind`. Invalid times are left out."""
    return tuple(
        SpeedSample(sample.nodes, sample.workers, sample.local_batch, sample.step_s, sample.compute_s, kind)
        for sample in status.speeds
        if all(math.isfinite(seconds) and seconds > 0 for seconds in (sample.step_s, sample.compute_s))
        and min(sample.nodes, sample.workers, sample.local_batch) > 0
    )


def parse_gradient_noise(status: pb.JobStatus) -> GradientNoise | None:
    """Returns the noise of the gradient at the global batch the job was submitted with; None: unknown."""
    norm_sq, variance = status.gradient_square, status.gradient_variance
    if not (math.isfinite(norm_sq) and math.isfinite(variance)) or min(norm_sq, variance) < 0 or not norm_sq + variance:
        return None
    return GradientNoise(norm_sq, variance)


def compute_batch_scale(batch: BatchConfig, workers: int, global_batch: int, max_scale: int) -> int:
    """Returns how many global batches make an update of about the planned size, within the job's limit."""
    if not global_batch:
        return 1
    # A pass of one global batch, rounded up to whole records per worker, counts as one.
    is_whole = (batch.local_batch - 1) * workers < global_batch <= batch.local_batch * workers
    scale = batch.passes if is_whole else round(batch.total_records(workers) / global_batch)
    return max(1, min(scale, max_scale or 1))
