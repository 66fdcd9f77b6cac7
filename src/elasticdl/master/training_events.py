"""What workers of a round say of their training, and what the master makes of it."""

from __future__ import annotations

from typing import NamedTuple

from elasticdl.spec.ids import WorkerId


class HeartbeatReceived(NamedTuple):
    """Never journaled: what it says is learned again from the next one."""

    worker: WorkerId
    round: int
    step: int
    records: int
    loss: float
    step_s: float
    compute_s: float
    learning_rate: float
    # Since the round was entered:
    timed_steps: int = 0
    single_s: float = 0.0  # an update as if it had one pass only
    pass_s: float = 0.0  # of it, what this worker computes
    # Of the training state:
    square: float = 0.0  # |g|² of the gradient; both are 0 until they are known
    variance: float = 0.0  # trace of its covariance at one global batch
    progress: float = 0.0
    batch_scale: int = 1
    # For the watchdog of progress, see stalls.py:
    activity: int = 0  # an `Activity` of the wire
    since_s: float = 0.0
    still_s: float = 0.0
    pause: str = ""
    slow_step_s: float = 0.0
    seat: int = 0  # the round whose group it has


class StallNoticed(NamedTuple):
    """A worker has come to no step for half as long as it may: people are told, and it writes down where it is."""

    worker: WorkerId
    reason: str


class StallEnded(NamedTuple):
    """It went on after all."""

    worker: WorkerId


class WorkerStalled(NamedTuple):
    """A worker that was noticed did not go on: it is replaced."""

    worker: WorkerId
    reason: str


class RoundStalled(NamedTuple):
    """A round that was planned is not entered, or its exchange does not end: it is planned anew.

    `late` are those that did not get ready; the others go on without them.
    """

    round: int
    late: tuple[WorkerId, ...]
    reason: str


class BatchChange(NamedTuple):
    """From `step` on, `scale` global batches make an update. Step -1: from the next one on, which nobody named yet."""

    id: int
    step: int
    scale: int


class BatchScaled(NamedTuple):
    """A change of the batch took effect."""

    worker: WorkerId
    sequence: int
    change: int
    step: int
    scale: int


class EpochLoss(NamedTuple):
    """The mean of the losses of an epoch, weighted by records."""

    epoch: int  # 1, 2, 3 …
    step: int  # its newest
    loss: float
    records: int


class LossesReported(NamedTuple):
    """A worker's part of the loss curve: with what was reported before, every point up to the step `until`."""

    worker: WorkerId
    sequence: int
    until: int
    points: tuple[tuple[int, float, float, int], ...]  # (step, loss, learning rate, records so far), by step
    epochs: tuple[EpochLoss, ...]


class SpeedMeasured(NamedTuple):
    """How fast updates of one pass are with so many workers on so many machines."""

    nodes: int
    workers: int
    local_batch: int  # records in one pass, of the worker that has most of them
    step_s: float
    compute_s: float  # of it, what the slowest worker computes

    @property
    def configuration(self) -> tuple[int, int, int]:
        return (self.nodes, self.workers, self.local_batch)


class ScriptsHalted(NamedTuple):
    """The members of a round of unmodified scripts are to end them: another round follows."""

    reason: str
    failed: str  # the worker whose script failed by itself; "": the workers changed
