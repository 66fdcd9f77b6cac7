"""The scheduler's report (`plan.json`): its decisions for people, and its accounts for the next scheduler process."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from elasticdl.errors import StateDamaged
from elasticdl.spec.directory import read_json, write_json

_log = logging.getLogger(__name__)


class ScheduledJobState(StrEnum):
    """What a job that is not over does."""

    WAITING = "waiting"  # without processes
    RUNNING = "running"  # launched, and nobody told it to stop
    SUSPENDING = "suspending"  # told to stop by the scheduler


@dataclass(frozen=True, slots=True)
class JobAccount:
    """What became of a job so far."""

    started_at: float | None = None  # first time it was given workers
    launched_at: float | None = None  # first time it was launched: what it was given was free by then
    attained_s: float = 0.0  # devices times seconds
    executed_s: float = 0.0  # with any workers at all
    changed_at: float | None = None  # when its workers changed last
    changes: int = 0  # of its workers since it started
    max_workers: int = 0
    launches: int = 0
    losses: int = 0  # ends without a result, one after the other
    step: int = 0
    total_steps: int = 0  # 0: not known


@dataclass(frozen=True, slots=True)
class ScheduledJobStatus:
    """One job."""

    state: ScheduledJobState
    allocated: Mapping[str, int]  # workers by node, that the plan gives it
    max_workers: int
    reason: str
    expected_wait_s: float | None = None  # until it has workers, or more; None: nobody can say
    allocated_at: float = 0.0  # it stands so
    submitted_at: float = 0.0  # a later job of the same name is another
    priority: int = 0
    queue: str = ""
    devices: int = 1
    batch_scale: int = 0  # global batches of an update, by the plan; 0: as the job likes
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
    """All jobs."""

    written_at: float
    policy: str
    nodes: Mapping[str, int]  # devices by name
    policy_error: str = ""  # why the policy's last answer was not taken; "": it was
    jobs: Mapping[str, ScheduledJobStatus] = field(default_factory=dict)

    @property
    def total_devices(self) -> int:
        return sum(self.nodes.values())

    @property
    def used_devices(self) -> int:
        return sum(status.worker_count * status.devices for status in self.jobs.values())

    def save(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> SchedulerReport | None:
        """None where no scheduler ever wrote one that we understand: masters and directories know the rest."""
        try:
            document = read_json(path)
            if document is None:
                return None
            return cls(
                **document | {"jobs": {name: _parse_job_status(status) for name, status in document["jobs"].items()}}
            )
        except (StateDamaged, ValueError, KeyError, TypeError) as exc:
            _log.warning("%s is not understood: %r", path, exc)
            return None


def _parse_job_status(document: Mapping[str, Any]) -> ScheduledJobStatus:
    fields = {"state": ScheduledJobState(document["state"]), "account": JobAccount(**document["account"])}
    return ScheduledJobStatus(**{**document, **fields})
