"""What a running job's master has measured, in the scheduler's words. Pure."""

from __future__ import annotations

import math

from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.scheduler.interface import Batch
from elasticdl.scheduler.snapshot import Noise, SpeedSample


def speeds(status: pb.JobStatus, kind: str = "") -> tuple[SpeedSample, ...]:
    """One for each way it was spread, on devices of `kind`. What is no time is left out."""
    return tuple(
        SpeedSample(one.nodes, one.workers, one.local_batch, one.step_s, one.compute_s, kind)
        for one in status.speeds
        if all(math.isfinite(seconds) and seconds > 0 for seconds in (one.step_s, one.compute_s))
        and min(one.nodes, one.workers, one.local_batch) > 0
    )


def noise(status: pb.JobStatus) -> Noise | None:
    """Of its gradient at the global batch it was submitted with; None: nobody knows."""
    square, variance = status.gradient_square, status.gradient_variance
    if not (math.isfinite(square) and math.isfinite(variance)) or min(square, variance) < 0 or not square + variance:
        return None
    return Noise(square, variance)


def batch_scale(status: pb.JobStatus, batch: Batch, workers: int) -> int:
    """How many global batches make an update of about the size that a plan has chosen, as far as the job allows it."""
    return scale_of(batch, workers, status.global_batch, status.max_batch_scale)


def scale_of(batch: Batch, workers: int, global_batch: int, most_scale: int) -> int:
    if not global_batch:
        return 1
    # A pass that is a global batch, rounded up to whole records of each worker, is one.
    is_whole = (batch.local - 1) * workers < global_batch <= batch.local * workers
    scale = batch.passes if is_whole else round(batch.total(workers) / global_batch)
    return max(1, min(scale, most_scale or 1))
