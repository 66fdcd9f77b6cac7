"""What was asked: the job, fully resolved, as frozen values."""

from elasticdl.spec.ids import JobId, WorkerId
from elasticdl.spec.job import (
    CheckpointSpec,
    DataSpec,
    EvaluationSpec,
    JobKind,
    JobSpec,
    ModelSpec,
    PlanSpec,
    ScriptSpec,
    SecuritySpec,
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
    "ScriptSpec",
    "SecuritySpec",
    "TimingSpec",
    "WorkerId",
    "WorkersSpec",
]
