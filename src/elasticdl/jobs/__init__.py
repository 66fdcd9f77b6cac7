"""Jobs from Python: describe, check, submit, find, watch, scale and stop them, wherever they run.

    from elasticdl import jobs

    job = jobs.find("last")
    print(job.status.phase, job.metrics)

See docs/api.md. The names below are imported when they are used: `import elasticdl` stays light.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticdl.jobs.history import LoggedEvaluation
    from elasticdl.jobs.job import Job as Job
    from elasticdl.jobs.job import LogLine as LogLine
    from elasticdl.jobs.job import find as find
    from elasticdl.jobs.job import list_jobs as list
    from elasticdl.jobs.job_status import JobEvent as JobEvent
    from elasticdl.jobs.job_status import JobStatus as JobStatus
    from elasticdl.jobs.job_status import PsStatus as PsStatus
    from elasticdl.jobs.job_status import ReplicaStatus as ReplicaStatus
    from elasticdl.jobs.job_status import WorkerStatus as WorkerStatus

# The module and the name there of each public name.
_SOURCES = {
    "Job": ("job", "Job"),
    "JobEvent": ("job_status", "JobEvent"),
    "JobStatus": ("job_status", "JobStatus"),
    "LogLine": ("job", "LogLine"),
    "LoggedEvaluation": ("history", "LoggedEvaluation"),
    "PsStatus": ("job_status", "PsStatus"),
    "ReplicaStatus": ("job_status", "ReplicaStatus"),
    "WorkerStatus": ("job_status", "WorkerStatus"),
    "find": ("job", "find"),
    "list": ("job", "list_jobs"),
}

__all__ = [
    "Job", "JobEvent", "JobStatus", "LogLine", "LoggedEvaluation", "PsStatus", "ReplicaStatus", "WorkerStatus", "find",
    "list",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _SOURCES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _SOURCES[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> Sequence[str]:
    return [*globals(), *__all__]
