"""A job's status and events as frozen values, for programs that use the Python API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from elasticdl.errors import JobFailed
from elasticdl.spec import JobKind, Phase

if TYPE_CHECKING:
    from elasticdl.rpc import elasticdl_pb2 as pb


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A worker or a parameter server as the master sees it."""

    name: str  # worker-0, ps-1
    state: str  # launching, starting, ready, member, left, lost, …
    since: float  # when it entered this state, in seconds since the epoch
    rank: int | None  # of a worker that is a member of the round
    step: int | None  # the newest step of a worker
    pid: int | None
    host: str
    reason: str

    @property
    def is_alive(self) -> bool:
        return self.state not in ("left", "lost")


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How a job stands. What is not known (yet) is None, or 0 where it is counted."""

    name: str
    kind: JobKind
    phase: Phase
    reason: str  # why it waits, failed or was stopped; "": nothing to say
    exit_code: int | None  # None while it is not over
    step: int
    total_steps: int | None
    records: int
    total_records: int | None
    epoch: int
    epochs: int
    loss: float | None
    records_per_s: float
    metrics: Mapping[str, float]  # of the newest evaluation
    metrics_step: int | None
    workers: tuple[ReplicaStatus, ...]
    ps: tuple[ReplicaStatus, ...]
    desired_workers: int
    min_workers: int
    max_workers: int
    started_at: float
    updated_at: float
    checkpoint: str | None  # the newest checkpoint
    checkpoint_step: int | None
    output: str | None
    location: str = field(default="here")  # "here": this machine; else CONTEXT/NAMESPACE

    @property
    def is_over(self) -> bool:
        return self.phase.is_over

    @property
    def progress(self) -> float | None:
        """The fraction of the steps, or of the records, that are done; None where the total is not known."""
        for done, total in ((self.step, self.total_steps), (self.records, self.total_records)):
            if total:
                return min(1.0, done / total)
        return None

    @property
    def living_workers(self) -> tuple[ReplicaStatus, ...]:
        return tuple(worker for worker in self.workers if worker.is_alive) if not self.is_over else ()

    def raise_for_failure(self) -> JobStatus:
        """Returns itself; raises JobFailed if the job failed or was stopped."""
        if self.phase in (Phase.FAILED, Phase.STOPPED):
            raise JobFailed(f"job {self.name!r} {self.phase}" + (f": {self.reason}" if self.reason else ""))
        return self

    @classmethod
    def from_message(cls, message: pb.JobStatus, location: str) -> JobStatus:
        phase = Phase(message.phase)
        return cls(
            name=message.name,
            kind=JobKind(message.kind or JobKind.TRAINING),
            phase=phase,
            reason=message.reason,
            exit_code=message.exit_code if phase.is_over else None,
            step=message.step,
            total_steps=message.total_steps or None,
            records=message.records,
            total_records=message.total_records or None,
            epoch=message.epoch,
            epochs=message.epochs,
            loss=message.loss if message.loss_step > 0 else None,
            records_per_s=message.records_per_s,
            metrics=MappingProxyType(dict(message.metrics)),
            metrics_step=message.metrics_step if message.metrics else None,
            workers=tuple(_replica_status(worker, worker.rank, worker.step) for worker in message.workers),
            ps=tuple(_replica_status(ps) for ps in message.ps),
            desired_workers=message.desired_workers,
            min_workers=message.min_workers,
            max_workers=message.max_workers,
            started_at=message.started_at,
            updated_at=message.now,
            checkpoint=message.checkpoint_path or None,
            checkpoint_step=message.checkpoint_step if message.checkpoint_step >= 0 else None,
            output=message.output or None,
            location=location,
        )


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job: a worker joined, left or was lost, a checkpoint was written, …"""

    at: float  # seconds since the epoch
    kind: str  # worker-joined, worker-lost, checkpoint, evaluation, …
    replica: str | None  # whom it happened to
    reason: str
    round: int
    step: int
    cost_s: float  # how long training stood still for it
    metrics: Mapping[str, float] = field(default_factory=dict)  # of an evaluation

    @classmethod
    def from_message(cls, message: pb.EventStatus) -> JobEvent:
        return cls(
            at=message.at,
            kind=message.kind,
            replica=message.worker or None,
            reason=message.reason,
            round=message.round,
            step=message.step,
            cost_s=message.cost_s,
            metrics=dict(message.metrics),
        )


def _replica_status(message: pb.WorkerStatus | pb.PsStatus, rank: int = -1, step: int = -1) -> ReplicaStatus:
    return ReplicaStatus(
        name=message.id,
        state=message.state,
        since=message.since,
        rank=rank if rank >= 0 else None,
        step=step if step >= 0 else None,
        pid=message.pid or None,
        host=message.host,
        reason=message.reason,
    )
