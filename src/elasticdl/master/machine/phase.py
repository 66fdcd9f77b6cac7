"""The phase of a job as the master knows it. Each phase carries what belongs to it and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from elasticdl.spec.phase import Phase

Outcome = Literal[Phase.SUCCEEDED, Phase.STOPPED, Phase.FAILED]


@dataclass(frozen=True, slots=True)
class PendingPhase:
    """No worker computes yet."""

    name: Literal[Phase.PENDING] = Phase.PENDING
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunningPhase:
    """Workers compute."""

    name: Literal[Phase.RUNNING] = Phase.RUNNING
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StoppingPhase:
    """The workers end after their step and write a checkpoint; at `deadline` nobody waits for them any more."""

    reason: str
    deadline: float
    name: Literal[Phase.STOPPING] = Phase.STOPPING
    failure_exit_code: int = 0  # the exit code of a job that has failed, and only keeps its state before it ends


@dataclass(frozen=True, slots=True)
class FinalPhase:
    """The job has ended; the exit code is the command's."""

    name: Outcome
    reason: str
    exit_code: int
    ended_at: float


JobPhase = Annotated[PendingPhase | RunningPhase | StoppingPhase | FinalPhase, Field(discriminator="name")]

STOPPED_EXIT_CODE = 130
