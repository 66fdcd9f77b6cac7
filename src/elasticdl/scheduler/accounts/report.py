"""The scheduler's report (`plan.json`): its decisions for users, and its accounts for the next scheduler process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class ScheduledJobState(StrEnum):
    """The state of a job that has not ended."""

    WAITING = "waiting"  # without processes
    RUNNING = "running"  # launched, and not asked to stop
    SUSPENDING = "suspending"  # asked to stop by the scheduler


@dataclass(frozen=True, slots=True)
class JobAccount:
    """The history of a job's usage."""

    started_at: float | None = None  # when a plan first allocated workers
    launched_at: float | None = None  # when it was first launched, with its devices free
    attained_s: float = 0.0  # device-seconds
    executed_s: float = 0.0  # seconds with workers
    changed_at: float | None = None  # when its workers last changed
    changes: int = 0  # of its workers since it started
    max_workers: int = 0
    launches: int = 0
    losses: int = 0  # consecutive ends without a result
    step: int = 0
    total_steps: int = 0  # 0: unknown


@dataclass(frozen=True, slots=True)
class ScheduledJobStatus:
    """The status of one job."""

    state: ScheduledJobState
    allocated: Mapping[str, int]  # workers by node in the plan
    max_workers: int
    reason: str
    expected_wait_s: float | None = None  # until it has workers, or more of them; None: unknown
    allocated_at: float = 0.0
    submitted_at: float = 0.0  # distinguishes jobs of the same name
    priority: int = 0
    queue: str = ""
    devices: int = 1
    batch_scale: int = 0  # global batches per update in the plan; 0: the job's own
    account: JobAccount = JobAccount()

    @property
    def worker_count(self) -> int:
        return sum(self.allocated.values())

    @property
    def is_waiting(self) -> bool:
        return not self.worker_count

    @property
    def is_shrunk(self) -> bool:
        return 0 < self.worker_count < self.max_workers


@dataclass(frozen=True, slots=True)
class SchedulerReport:
    """The scheduler's decisions and accounts."""

    written_at: float
    policy: str
    nodes: Mapping[str, int]  # devices by name
    policy_error: str = ""  # why the policy's last plan was rejected; "": it was not
    jobs: Mapping[str, ScheduledJobStatus] = field(default_factory=dict)

    @property
    def total_devices(self) -> int:
        return sum(self.nodes.values())

    @property
    def used_devices(self) -> int:
        return sum(status.worker_count * status.devices for status in self.jobs.values())

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SchedulerReport:
        """Raises ValueError, KeyError or TypeError for a document that is not a report."""
        jobs = {name: _parse_job_status(status) for name, status in document["jobs"].items()}
        return cls(**{**document, "jobs": jobs})

    def to_document(self) -> dict[str, Any]:
        return asdict(self)


def _parse_job_status(document: Mapping[str, Any]) -> ScheduledJobStatus:
    fields = {"state": ScheduledJobState(document["state"]), "account": JobAccount(**document["account"])}
    return ScheduledJobStatus(**{**document, **fields})
