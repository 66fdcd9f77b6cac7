"""A job's status and events as frozen values, for programs that use the Python API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from elasticdl.errors import JobFailed
from elasticdl.master.machine.events import EpochLoss
from elasticdl.spec import JobKind, Phase

if TYPE_CHECKING:
    from elasticdl.rpc import elasticdl_pb2 as pb


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A worker or a parameter server as the master sees it."""

    name: str  # worker-0, ps-1
    state: str  # launching, starting, ready, member, serving, left, lost, …
    since: float = 0.0  # when it entered this state, in seconds since the epoch
    pid: int | None = None
    host: str = ""
    reason: str = ""

    @property
    def is_alive(self) -> bool:
        return self.state not in ("left", "lost")


@dataclass(frozen=True, slots=True)
class WorkerStatus(ReplicaStatus):
    rank: int | None = None  # of a member of the round
    logical_ranks: int = 0  # how many a member computes
    step: int | None = None  # its newest
    step_s: float | None = None  # seconds a step takes

    @classmethod
    def from_message(cls, message: pb.WorkerStatus) -> WorkerStatus:
        is_member = message.rank >= 0
        return cls(
            name=message.id,
            state=message.state,
            since=message.since,
            pid=message.pid or None,
            host=message.host,
            reason=message.reason,
            rank=message.rank if is_member else None,
            logical_ranks=message.logical_ranks if is_member else 0,
            step=message.step if message.step >= 0 else None,
            step_s=message.step_s or None,
        )


@dataclass(frozen=True, slots=True)
class PsStatus(ReplicaStatus):
    address: str | None = None
    slots: int = 0
    backup: str | None = None  # the ps that holds a backup of all its slots
    map_version: int = 0
    rows: int = 0
    memory_bytes: int = 0
    requests: int = 0  # answered so far
    requests_per_s: float = 0.0
    pushes: int = 0
    repeated_pushes: int = 0
    refused: int = 0
    malformed: int = 0
    lock_wait_s: float = 0.0  # of all threads so far
    staleness: tuple[int, ...] = ()  # pushes by staleness: 0, 1, 2-3, 4-7, 8-15, …
    clock: int = 0  # updates so far

    @classmethod
    def from_message(cls, message: pb.PsStatus) -> PsStatus:
        heartbeat = message.heartbeat
        return cls(
            name=message.id,
            state=message.state,
            since=message.since,
            pid=message.pid or None,
            host=message.host,
            reason=message.reason,
            address=message.address or None,
            slots=message.slots,
            backup=message.backup or None,
            map_version=heartbeat.map_version,
            rows=heartbeat.rows,
            memory_bytes=heartbeat.bytes,
            requests=heartbeat.requests,
            requests_per_s=message.requests_per_s,
            pushes=heartbeat.applied,
            repeated_pushes=heartbeat.repeated,
            refused=heartbeat.refused,
            malformed=heartbeat.malformed,
            lock_wait_s=heartbeat.lock_wait_s,
            staleness=tuple(heartbeat.staleness),
            clock=heartbeat.clock,
        )


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job: a worker joined, left or was lost, a checkpoint was written, …"""

    at: float  # seconds since the epoch
    kind: str  # worker-joined, worker-lost, checkpoint, evaluation, …
    replica: str | None = None  # the worker or ps it happened to
    reason: str = ""
    round: int = 0
    step: int = 0
    cost_s: float = 0.0  # how long training stood still for it
    metrics: Mapping[str, float] = field(default_factory=dict)  # of an evaluation

    @classmethod
    def from_message(cls, message: pb.EventStatus) -> JobEvent:
        return cls(
            at=message.at,
            kind=message.kind,
            replica=message.replica or None,
            reason=message.reason,
            round=message.round,
            step=message.step,
            cost_s=message.cost_s,
            metrics=dict(message.metrics),
        )


@dataclass(frozen=True, slots=True)
class ScalingStatus:
    """What a scheduler learns of a training job: how fast it was at which size, and how its batch was scaled."""

    global_batch: int | None = None
    batch_scale: int | None = None  # global batches that make an update now
    max_batch_scale: int | None = None  # 1: the batch of this job stays as it is
    batch_scales: tuple[tuple[int | None, int], ...] = ()  # every change: from which step on, and how many batches
    gradient_square: float | None = None
    gradient_variance: float | None = None  # trace of the covariance at one global batch
    progress_steps: float | None = None  # steps of one global batch that would have come as far
    speeds: tuple[Mapping[str, Any], ...] = ()  # nodes, workers, local_batch, step_s, compute_s

    @classmethod
    def from_message(cls, message: pb.JobStatus) -> ScalingStatus:
        has_noise = bool(message.gradient_square or message.gradient_variance)
        return cls(
            global_batch=message.global_batch or None,
            batch_scale=message.batch_scale or None,
            max_batch_scale=message.max_batch_scale or None,
            batch_scales=tuple(
                (scale.step if scale.step >= 0 else None, scale.scale) for scale in message.batch_scales
            ),
            gradient_square=message.gradient_square if has_noise else None,
            gradient_variance=message.gradient_variance if has_noise else None,
            progress_steps=message.progress if message.step > 0 else None,
            speeds=tuple(
                {
                    "nodes": speed.nodes,
                    "workers": speed.workers,
                    "local_batch": speed.local_batch,
                    "step_s": speed.step_s,
                    "compute_s": speed.compute_s,
                }
                for speed in message.speeds
            ),
        )


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How a job stands. What is not known (yet) is None, or 0 where it is counted."""

    name: str
    kind: JobKind
    phase: Phase
    reason: str = ""  # why it waits, failed or was stopped; "": nothing to say
    exit_code: int | None = None  # None while it is not over
    step: int = 0
    total_steps: int | None = None
    records: int = 0
    total_records: int | None = None
    records_per_epoch: int | None = None
    epoch: int = 0
    epochs: int = 0
    shards_done: int = 0  # of an evaluation or a prediction
    shards: int = 0
    loss: float | None = None
    loss_step: int | None = None  # whose loss it is
    epoch_loss: EpochLoss | None = None  # of the newest epoch that ended
    records_per_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the newest evaluation
    metrics_step: int | None = None
    best: str | None = None  # for example "accuracy 0.981 at step 120"
    bad_records: int = 0  # that were skipped
    bad_record_names: tuple[str, ...] = ()  # the first of them, each with the reason
    round: int = 0
    workers: tuple[WorkerStatus, ...] = ()
    ps: tuple[PsStatus, ...] = ()
    desired_workers: int = 0
    min_workers: int = 0
    max_workers: int = 0
    desired_ps: int = 0
    strategy: str | None = None
    ps_mode: str | None = None
    started_at: float = 0.0
    updated_at: float = 0.0
    checkpoint: str | None = None  # the newest checkpoint
    checkpoint_step: int | None = None
    output: str | None = None
    events: tuple[JobEvent, ...] = ()  # the newest, oldest first; `Job.events` has all
    scaling: ScalingStatus = ScalingStatus()
    location: str = "here"  # "here": this machine; else CONTEXT/NAMESPACE

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
    def living_workers(self) -> tuple[WorkerStatus, ...]:
        return tuple(worker for worker in self.workers if worker.is_alive) if not self.is_over else ()

    @property
    def living_ps(self) -> tuple[PsStatus, ...]:
        return tuple(ps for ps in self.ps if ps.is_alive) if not self.is_over else ()

    def raise_for_failure(self) -> JobStatus:
        """Returns itself; raises JobFailed if the job failed or was stopped."""
        if self.phase in (Phase.FAILED, Phase.STOPPED):
            raise JobFailed(f"job {self.name!r} {self.phase}" + (f": {self.reason}" if self.reason else ""))
        return self

    @classmethod
    def from_message(cls, message: pb.JobStatus, location: str) -> JobStatus:
        phase = Phase(message.phase or Phase.STARTING)
        epoch_loss = message.epoch_loss
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
            records_per_epoch=message.records_per_epoch or None,
            epoch=message.epoch,
            epochs=message.epochs,
            shards_done=message.shards_done,
            shards=message.shards,
            loss=message.loss if message.loss_step > 0 else None,
            loss_step=message.loss_step or None,
            epoch_loss=(
                EpochLoss(epoch_loss.epoch, epoch_loss.step, epoch_loss.loss, epoch_loss.records)
                if message.HasField("epoch_loss")
                else None
            ),
            records_per_s=message.records_per_s,
            metrics=MappingProxyType(dict(message.metrics)),
            metrics_step=message.metrics_step if message.metrics else None,
            best=message.best or None,
            bad_records=message.bad_records,
            bad_record_names=tuple(message.bad_record_names),
            round=message.round,
            workers=tuple(WorkerStatus.from_message(worker) for worker in message.workers),
            ps=tuple(PsStatus.from_message(ps) for ps in message.ps),
            desired_workers=message.desired_workers,
            min_workers=message.min_workers,
            max_workers=message.max_workers,
            desired_ps=message.desired_ps,
            strategy=message.strategy or None,
            ps_mode=message.ps_mode or None,
            started_at=message.started_at,
            updated_at=message.now,
            checkpoint=message.checkpoint_path or None,
            checkpoint_step=message.checkpoint_step if message.checkpoint_step >= 0 else None,
            output=message.output or None,
            events=tuple(JobEvent.from_message(event) for event in message.events),
            scaling=ScalingStatus.from_message(message),
            location=location,
        )
