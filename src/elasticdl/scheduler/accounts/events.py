"""Events that happen to a scheduled job, and actions the scheduler takes on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from elasticdl.scheduler.accounts.report import JobAccount, ScheduledJobState
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.scheduler.models.goodput import gain_ratio
from elasticdl.scheduler.snapshot import GradientNoise, SpeedSample

# ---- events


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    submission: JobSubmission


@dataclass(frozen=True, slots=True)
class JobRecovered:
    """The previous scheduler process knew this job."""

    submission: JobSubmission
    state: ScheduledJobState
    allocated: Mapping[str, int]  # workers by node in its last plan
    account: JobAccount


@dataclass(frozen=True, slots=True)
class JobStopRequested:
    """The user wants the job to end permanently."""

    name: str


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What a job's master reported about its training."""

    step: int = 0
    total_steps: int = 0  # 0: unknown
    remaining_s: float | None = None  # at the current speed; None: unknown
    change_cost_s: float | None = None  # of the most recent change of its workers
    speeds: tuple[SpeedSample, ...] = ()
    noise: GradientNoise | None = None
    work_done: float = 0.0  # steps of one global batch that make this progress; 0: unknown, steps count
    global_batch: int = 0  # records; 0: unknown
    batch_scale: int = 0  # global batches per update; 0: unknown
    max_batch_scale: int = 1  # 1: the batch never changes

    @property
    def work_left(self) -> float | None:
        """The remaining progress in the unit of `work_done`, if the job goes on as it trains now. None: unknown.

        A job ends after a number of steps. With k batches per update, k steps are worth less than k steps of one batch.
        """
        if not self.total_steps:
            return None
        scale = max(self.batch_scale, 1)
        work_per_step = float(gain_ratio(self.noise, scale)) / scale if self.noise else 1.0
        return max(self.total_steps - self.step, 0) * work_per_step

    def merged_with(self, earlier: JobProgress) -> JobProgress:
        """Adds earlier measurements that are not repeated yet: after a suspension a new master knows none of them."""
        speeds = {
            (sample.nodes, sample.workers, sample.local_batch, sample.kind): sample
            for sample in (*earlier.speeds, *self.speeds)
        }
        change_cost_s = earlier.change_cost_s if self.change_cost_s is None else self.change_cost_s
        noise = self.noise or earlier.noise
        return replace(self, speeds=tuple(speeds.values()), noise=noise, change_cost_s=change_cost_s)


@dataclass(frozen=True, slots=True)
class JobStatusReported:
    """A master reported the state of its job."""

    name: str
    reported_at: float
    phase: str
    desired_workers: int  # workers it works towards
    live_workers: int  # workers that have not left yet
    progress: JobProgress = JobProgress()


@dataclass(frozen=True, slots=True)
class JobExited:
    """The job left a result, and all its processes have ended."""

    name: str
    phase: str  # succeeded, stopped, failed


@dataclass(frozen=True, slots=True)
class JobLost:
    """All processes of the job have ended, and it left no result."""

    name: str
    reason: str = "its processes are gone and left no result"


@dataclass(frozen=True, slots=True)
class ActionSucceeded:
    """One of our actions was carried out."""

    name: str
    finished_at: float


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """One of our actions failed; it is due again."""

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

# ---- actions


@dataclass(frozen=True, slots=True)
class StartJob:
    name: str
    workers: int
    resumes: bool  # it ran before: continue from its newest checkpoint


@dataclass(frozen=True, slots=True)
class ResizeJob:
    name: str
    workers: int
    batch_scale: int = 0  # global batches per update from now on; 0: unchanged


@dataclass(frozen=True, slots=True)
class SuspendJob:
    """Stop the job with a checkpoint, to continue later."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class StopJob:
    """Stop the job with a checkpoint, permanently."""

    name: str


@dataclass(frozen=True, slots=True)
class CloseJob:
    """End a job that has no processes."""

    name: str
    phase: str  # failed, stopped
    reason: str


JobAction = StartJob | ResizeJob | SuspendJob | StopJob | CloseJob
