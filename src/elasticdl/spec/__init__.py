"""The description of a job, fully resolved, as frozen values."""

from elasticdl.spec.cluster import ClusterSpec, RoleSpec, VolumeSpec
from elasticdl.spec.data import BadRows, DataSpec, PredictionSpec
from elasticdl.spec.ids import JobId, PsId, WorkerId
from elasticdl.spec.job import (
    CheckpointSpec,
    EvaluationSpec,
    JobKind,
    JobSpec,
    ModelSpec,
    PsMode,
    PsSpec,
    ScriptSpec,
    SecuritySpec,
    Strategy,
    TimingSpec,
    WorkersSpec,
    is_loopback,
)
from elasticdl.spec.phase import Phase
from elasticdl.spec.plan import ComputePrecision, LrScaling, PlanSpec

__all__ = [
    "BadRows",
    "CheckpointSpec",
    "ClusterSpec",
    "ComputePrecision",
    "DataSpec",
    "EvaluationSpec",
    "JobId",
    "JobKind",
    "JobSpec",
    "LrScaling",
    "ModelSpec",
    "Phase",
    "PlanSpec",
    "PredictionSpec",
    "PsId",
    "PsMode",
    "PsSpec",
    "RoleSpec",
    "ScriptSpec",
    "SecuritySpec",
    "Strategy",
    "TimingSpec",
    "VolumeSpec",
    "WorkerId",
    "WorkersSpec",
    "is_loopback",
]
