"""The phase of a job as the master knows it. Each phase has only the fields that make sense in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from elasticdl.spec.phase import Phase

Outcome = Literal[Phase.SUCCEEDED, Phase.STOPPED, Phase.FAILED]


@dataclass(frozen=True, slots=True)
class PendingPhase:
    """No worker trains yet."""

    name: Literal[Phase.PENDING] = Phase.PENDING
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunningPhase:
    """Workers train."""

    name: Literal[Phase.RUNNING] = Phase.RUNNING
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StoppingPhase:
    """The workers end after their step and write a checkpoint. The job ends at `deadline` even if they did not."""

    reason: str
    deadline: float
    name: Literal[Phase.STOPPING] = Phase.STOPPING
    failure_exit_code: int = 0  # of a job that has failed and only saves its state before it ends


@dataclass(frozen=True, slots=True)
class FinalPhase:
    """The job has ended. `elasticdl train` exits with its exit code."""

    name: Outcome
    reason: str
    exit_code: int
    ended_at: float


JobPhase = Annotated[PendingPhase | RunningPhase | StoppingPhase | FinalPhase, Field(discriminator="name")]

STOPPED_EXIT_CODE = 130
