"""What was asked: the job, fully resolved, as frozen values."""

from elasticdl.spec.ids import JobId, PsId, WorkerId
from elasticdl.spec.job import (
    CheckpointSpec,
    DataSpec,
    EvaluationSpec,
    JobKind,
    JobSpec,
    ModelSpec,
    PlanSpec,
    PsMode,
    PsSpec,
    ScriptSpec,
    SecuritySpec,
    Strategy,
    TimingSpec,
    WorkersSpec,
)

__all__ = [
    "CheckpointSpec",
    "DataSpec",
    "EvaluationSpec",
    "JobId",
    "JobKind",
    "JobSpec",
    "ModelSpec",
    "PlanSpec",
    "PsId",
    "PsMode",
    "PsSpec",
    "ScriptSpec",
    "SecuritySpec",
    "Strategy",
    "TimingSpec",
    "WorkerId",
    "WorkersSpec",
]
