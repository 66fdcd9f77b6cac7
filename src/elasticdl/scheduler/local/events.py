"""What happens to jobs of this machine, and what is to be done about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from elasticdl.scheduler.local.standing import Account, State
from elasticdl.scheduler.local.submission import Submission
from elasticdl.scheduler.models.goodput import gain
from elasticdl.scheduler.snapshot import Noise, SpeedSample

# ---- what happened


@dataclass(frozen=True, slots=True)
class Submitted:
    submission: Submission


@dataclass(frozen=True, slots=True)
class Found:
    """A scheduler before us knew this job."""

    submission: Submission
    state: State
    given: Mapping[str, int]  # workers by node, of its last plan
    account: Account


@dataclass(frozen=True, slots=True)
class StopAsked:
    """By a person: the job shall end for good."""

    name: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job's master knows of its training."""

    step: int = 0
    total_steps: int = 0  # 0: not known
    remaining_s: float | None = None  # at the present speed; None: nobody can say
    change_cost_s: float | None = None  # of the newest change of its workers
    speeds: tuple[SpeedSample, ...] = ()
    noise: Noise | None = None
    work: float = 0.0  # steps of one global batch that would have come as far; 0: not known, its steps count
    global_batch: int = 0  # records; 0: not known
    batch_scale: int = 0  # global batches that make an update; 0: not known
    most_scale: int = 1  # 1: its batch stays as it is

    @property
    def work_left(self) -> float | None:
        """What it will have come farther by, in the unit of `work`, if it ends as it trains now. None: nobody knows.

        A job is over when its steps are: with k batches an update, k steps are worth less than k.
        """
        if not self.total_steps:
            return None
        scale = max(self.batch_scale, 1)
        worth = float(gain(self.noise, scale)) / scale if self.noise else 1.0
        return max(self.total_steps - self.step, 0) * worth

    def after(self, earlier: Progress) -> Progress:
        """With what was measured earlier and not yet again: a master after a suspension knows none of it."""
        speeds = {(one.nodes, one.workers, one.local_batch, one.kind): one for one in (*earlier.speeds, *self.speeds)}
        cost = earlier.change_cost_s if self.change_cost_s is None else self.change_cost_s
        noise = self.noise or earlier.noise
        return replace(self, speeds=tuple(speeds.values()), noise=noise, change_cost_s=cost)


@dataclass(frozen=True, slots=True)
class Seen:
    """A master told how its job stands at `at`."""

    name: str
    at: float
    phase: str
    wished: int  # workers it works towards
    living: int  # workers that have not gone yet
    progress: Progress = Progress()


@dataclass(frozen=True, slots=True)
class Ended:
    """It left a result, and no process of it lives."""

    name: str
    phase: str  # succeeded, stopped, failed


@dataclass(frozen=True, slots=True)
class Lost:
    """No process of it lives, and it left no result."""

    name: str
    why: str = "its processes are gone and left no result"


@dataclass(frozen=True, slots=True)
class Done:
    """An action of ours was carried out by `at`."""

    name: str
    at: float


@dataclass(frozen=True, slots=True)
class Failed:
    """It was not; it is due again."""

    name: str
    at: float


Event = Submitted | Found | StopAsked | Seen | Ended | Lost | Done | Failed

# ---- what is to be done


@dataclass(frozen=True, slots=True)
class Start:
    name: str
    workers: int
    resumes: bool  # it ran before: go on from its newest checkpoint


@dataclass(frozen=True, slots=True)
class Resize:
    name: str
    workers: int
    batch_scale: int = 0  # global batches that make an update from now on; 0: as they do


@dataclass(frozen=True, slots=True)
class Suspend:
    """Stop with a checkpoint; it goes on later."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop with a checkpoint, for good."""

    name: str


@dataclass(frozen=True, slots=True)
class Close:
    """A job without processes is over."""

    name: str
    phase: str  # failed, stopped
    reason: str


Action = Start | Resize | Suspend | Stop | Close
