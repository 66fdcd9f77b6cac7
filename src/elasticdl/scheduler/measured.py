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
    if not status.global_batch:
        return 1
    return max(1, min(round(batch.total(workers) / status.global_batch), status.max_batch_scale or 1))
