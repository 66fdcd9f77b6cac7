"""Events that happen to a scheduled job, and actions the scheduler takes on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from elasticdl.scheduler.accounts.report import JobAccount, ScheduledJobState
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.scheduler.models.goodput import gain_ratio
from elasticdl.scheduler.snapshot import GradientNoise, SpeedSample

# ---- what happened


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    submission: JobSubmission


@dataclass(frozen=True, slots=True)
class JobRecovered:
    """A scheduler before us knew this job."""

    submission: JobSubmission
    state: ScheduledJobState
    allocated: Mapping[str, int]  # workers by node, of its last plan
    account: JobAccount


@dataclass(frozen=True, slots=True)
class JobStopRequested:
    """By a person: the job shall end for good."""

    name: str


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What a job's master knows of its training."""

    step: int = 0
    total_steps: int = 0  # 0: not known
    remaining_s: float | None = None  # at the present speed; None: nobody can say
    change_cost_s: float | None = None  # of the newest change of its workers
    speeds: tuple[SpeedSample, ...] = ()
    noise: GradientNoise | None = None
    work_done: float = 0.0  # steps of one global batch that would have come as far; 0: not known, its steps count
    global_batch: int = 0  # records; 0: not known
    batch_scale: int = 0  # global batches that make an update; 0: not known
    max_batch_scale: int = 1  # 1: its batch stays as it is

    @property
    def work_left(self) -> float | None:
        """What it will have come farther by, in the unit of `work`, if it ends as it trains now. None: nobody knows.

        A job is over when its steps are: with k batches an update, k steps are worth less than k.
        """
        if not self.total_steps:
            return None
        scale = max(self.batch_scale, 1)
        work_per_step = float(gain_ratio(self.noise, scale)) / scale if self.noise else 1.0
        return max(self.total_steps - self.step, 0) * work_per_step

    def merged_with(self, earlier: JobProgress) -> JobProgress:
        """With what was measured earlier and not yet again: a master after a suspension knows none of it."""
        speeds = {
            (sample.nodes, sample.workers, sample.local_batch, sample.kind): sample
            for sample in (*earlier.speeds, *self.speeds)
        }
        change_cost_s = earlier.change_cost_s if self.change_cost_s is None else self.change_cost_s
        noise = self.noise or earlier.noise
        return replace(self, speeds=tuple(speeds.values()), noise=noise, change_cost_s=change_cost_s)


@dataclass(frozen=True, slots=True)
class JobStatusReported:
    """A master told how its job stands at `at`."""

    name: str
    reported_at: float
    phase: str
    desired_workers: int  # workers it works towards
    live_workers: int  # workers that have not gone yet
    progress: JobProgress = JobProgress()


@dataclass(frozen=True, slots=True)
class JobExited:
    """It left a result, and no process of it lives."""

    name: str
    phase: str  # succeeded, stopped, failed


@dataclass(frozen=True, slots=True)
class JobLost:
    """No process of it lives, and it left no result."""

    name: str
    reason: str = "its processes are gone and left no result"


@dataclass(frozen=True, slots=True)
class ActionSucceeded:
    """An action of ours was carried out by `at`."""

    name: str
    finished_at: float


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """It was not; it is due again."""

    name: str
    failed_at: float


JobEvent = (
    JobSubmitted
    | JobRecovered
    | JobStopRequested
    | JobStatusReported
    | JobExited
    | JobLost
    | ActionSucceeded
    | ActionFailed
)

# ---- what is to be done


@dataclass(frozen=True, slots=True)
class StartJob:
    name: str
    workers: int
    resumes: bool  # it ran before: go on from its newest checkpoint


@dataclass(frozen=True, slots=True)
class ResizeJob:
    name: str
    workers: int
    batch_scale: int = 0  # global batches that make an update from now on; 0: as they do


@dataclass(frozen=True, slots=True)
class SuspendJob:
    """Stop with a checkpoint; it goes on later."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class StopJob:
    """Stop with a checkpoint, for good."""

    name: str


@dataclass(frozen=True, slots=True)
class CloseJob:
    """A job without processes is over."""

    name: str
    phase: str  # failed, stopped
    reason: str


JobAction = StartJob | ResizeJob | SuspendJob | StopJob | CloseJob
