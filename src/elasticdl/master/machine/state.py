"""What the master knows about its job: the ledger, which the journal restores, and its observations."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from pydantic import ConfigDict

from elasticdl.master.machine.actions import ROUTINE_KINDS, EventLogEntry, SendMessage, WriteLogEntry
from elasticdl.master.machine.events import BatchChange, DataPlanReported, HeartbeatReceived, JobResumed, SpeedMeasured
from elasticdl.master.machine.failure_budget import FailureBudget, LossStreak
from elasticdl.master.machine.membership import Membership, Worker
from elasticdl.master.machine.phase import FinalPhase, JobPhase, PendingPhase
from elasticdl.master.ps_fleet.fleet import PsFleet
from elasticdl.master.ps_fleet.ps_events import PsHeartbeatReceived
from elasticdl.master.strategies.evaluation import EvaluationState
from elasticdl.master.strategies.loss_curve import LossCurve
from elasticdl.master.strategies.rounds import RoundState
from elasticdl.master.strategies.shards import TrainingQueue
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobSpec, PsId, WorkerId
from elasticdl.spec.ids import ReplicaId

if TYPE_CHECKING:
    from elasticdl.master.strategies.base import JobStrategy

MAX_RECENT_ENTRIES = 100
MAX_NOTABLE_ENTRIES = 20
SUSPECT_NODE_S = 120.0  # after this time, the cluster itself knows that a node is lost


@dataclass(slots=True)
class Ledger:
    """The state that replay restores to the bit. Only journaled events change it."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")  # a metric may be NaN

    desired_workers: int
    failure_budget: FailureBudget
    loss_streak: LossStreak = field(default_factory=LossStreak)
    stalls: int = 0  # workers and ps replaced because they made no progress
    phase: JobPhase = field(default_factory=PendingPhase)
    membership: Membership = field(default_factory=Membership)
    rounds: RoundState = field(default_factory=RoundState)
    evaluations: EvaluationState = field(default_factory=EvaluationState)
    training: TrainingQueue | None = None  # of lease training
    initializer: WorkerId | None = None  # the worker that creates its first state
    evaluated_records: int = 0  # records trained when the newest evaluation was opened
    checkpointed_batches: int = 0  # batches trained when the newest checkpoint was requested
    checkpoint_writer: WorkerId | None = None  # the worker that writes it
    fleet: PsFleet = field(default_factory=PsFleet)
    memory_raises: dict[str, int] = field(default_factory=dict)  # how often the memory of a role's pods has been raised
    plan: DataPlanReported | None = None
    started_at: float = 0.0
    master_starts: int = 0
    step: int = 0
    records: int = 0
    resumed_from: JobResumed | None = None  # the checkpoint of an earlier run that the job resumes from
    loss_curve: LossCurve = field(default_factory=LossCurve)
    checkpoint: tuple[int, str] | None = None  # (step, path)
    export: tuple[WorkerId, str] | None = None  # who must write the last checkpoint, and the path of the model
    is_exported: bool = False
    # Workers that were asked to save the state of a job that has failed:
    final_checkpoint_writers: list[WorkerId] = field(default_factory=list)
    notices: dict[str, int] = field(default_factory=dict)  # count of each kind of notices.py
    bad_records: dict[str, str] = field(default_factory=dict)  # "source, record N": reason
    output: str = ""
    progress: float = 0.0  # at the end: steps of one global batch that would have made the same progress
    finish_reason: str = ""
    end_reason: str = ""  # why a callback ended lease training before its data was drained
    batch_changes: list[BatchChange] = field(default_factory=list)  # every change of the batch size, the newest last
    applied_batch_change: int = 0  # the newest one that took effect
    speeds: list[SpeedMeasured] = field(default_factory=list)  # one per configuration
    joined_count: int = 0
    cpu_capability: str = ""  # of the first worker; results depend on it
    ready_at: float = 0.0  # when the newest newcomer became ready
    entry_count: int = 0  # lines of the event log so far
    recent_entries: list[EventLogEntry] = field(default_factory=list)
    # Numbered entries that are no routine: hundreds of routine ones must not hide them.
    notable_entries: list[tuple[int, EventLogEntry]] = field(default_factory=list)


@dataclass(slots=True)
class PsObservation:
    """What is known about a ps from its Hello and its newest heartbeat."""

    heard_at: float
    map_version: int
    heartbeat: PsHeartbeatReceived | None = None
    requests_per_s: float = 0.0  # smoothed

    def update(self, heartbeat: PsHeartbeatReceived, now: float) -> None:
        previous, passed_s = self.heartbeat, now - self.heard_at
        if previous is not None and passed_s > 0:
            rate = max(0, heartbeat.requests - previous.requests) / passed_s
            self.requests_per_s += min(1.0, passed_s / 2.0) * (rate - self.requests_per_s)
        self.heard_at, self.map_version, self.heartbeat = now, heartbeat.map_version, heartbeat

    def clear_backup_failure(self) -> None:
        """Forget the failure in the newest heartbeat: it is about an earlier backup."""
        if self.heartbeat is not None:
            self.heartbeat = self.heartbeat._replace(backup_failure="")


@dataclass(slots=True)
class Observations:
    """What heartbeats reported. Not journaled: a restarted master knows it again after a heartbeat."""

    watching_since: float = 0.0  # when this master started
    has_launcher: bool = False  # whether a launcher has listed its replicas
    heard_at: dict[ReplicaId, float] = field(default_factory=dict)
    heard_since: dict[ReplicaId, float] = field(
        default_factory=dict
    )  # start of the time in which it was heard without a gap
    heartbeats: dict[WorkerId, HeartbeatReceived] = field(default_factory=dict)
    step: int = -1
    records: int = 0
    loss: float = 0.0
    learning_rate: float = 0.0
    gradient_square: float = 0.0  # |g|² of the gradient
    gradient_variance: float = 0.0
    progress: float = 0.0
    batch_scale: int = 0  # global batches per update; 0: not known yet
    speed: SpeedMeasured | None = None  # of the round that trains
    speed_journaled_at: float = 0.0  # when a speed was journaled last
    progressed_at: float = 0.0  # when the newest step was reported
    records_per_s: float = 0.0  # records per second, smoothed
    unbalanced_since: float | None = None
    progress_journaled_at: float = 0.0  # when the progress was journaled last
    ps: dict[PsId, PsObservation] = field(default_factory=dict)
    silent_at: dict[ReplicaId, float] = field(
        default_factory=dict
    )  # when it was considered lost, if it was not heard since
    settled_fleet: tuple[object, ...] = ()  # `task_inputs` of the fleet when it needed no task

    def record_heard(self, replica: ReplicaId, now: float, heartbeat_timeout_s: float) -> None:
        if now - self.heard_at.get(replica, 0.0) >= heartbeat_timeout_s:
            self.heard_since[replica] = now
        self.heard_at[replica] = now

    def record_progress(self, step: int, records: int, now: float) -> None:
        """Record how much is trained now, and the rate."""
        if self.step >= 0 and now > self.progressed_at:
            rate = max(0, records - self.records) / (now - self.progressed_at)
            # Smoothed over about two seconds, however often reports come.
            weight = min(1.0, (now - self.progressed_at) / 2.0)
            self.records_per_s = (
                rate if self.records_per_s == 0.0 else self.records_per_s + weight * (rate - self.records_per_s)
            )
        self.step, self.records, self.progressed_at = step, records, now

    def forgive_silence(self, now: float) -> None:
        """Ignore the silence of all replicas up to now."""
        self.heard_at = dict.fromkeys(self.heard_at, now)


@dataclass(slots=True)
class MasterState:
    """The state of one job: what is journaled, what is observed, and what stays fixed."""

    spec: JobSpec
    strategy: JobStrategy  # how the workers share the work
    logs: str  # the directory with the logs of replicas, for messages to the user
    ledger: Ledger
    initial_snapshot: str = ""  # a checkpoint with rows of ps to start from; "": tables start empty
    observed: Observations = field(default_factory=Observations)

    @property
    def is_over(self) -> bool:
        return isinstance(self.ledger.phase, FinalPhase)

    @property
    def step(self) -> int:
        return max(self.ledger.step, self.observed.step)

    @property
    def records_per_epoch(self) -> int:
        """0 until a worker has reported it."""
        return self.ledger.plan.records_per_epoch if self.ledger.plan is not None else 0

    def record_useful_work(self) -> None:
        """A worker did useful work: relaunch without delay again if the job has made progress since the last loss."""
        if self.ledger.loss_streak.has_progressed(self.strategy.known_progress(self)):
            self.ledger.failure_budget.reset_delay()

    @property
    def progress(self) -> float:
        return max(self.ledger.progress, self.observed.progress)

    @property
    def global_batch(self) -> int:
        """Records of a step; 0 until a worker has reported it."""
        return self.ledger.plan.global_batch if self.ledger.plan is not None else 0

    @property
    def max_batch_scale(self) -> int:
        return self.spec.plan.max_scale(self.global_batch or self.spec.plan.global_batch_size)

    def log_location(self, replica: ReplicaId) -> str:
        """Where the user finds the log of a replica: a file, or the command that shows the log of a pod."""
        if self.spec.cluster is None:
            return f"{self.logs}/{replica}.log"
        role, _, number = replica.rpartition("-")
        return f"`elasticdl logs {self.spec.name} --{role} {number}`"

    def suspect_replicas(self, now: float) -> tuple[str, ...]:
        """Replicas whose node may be lost while the cluster does not know it yet and would place others there."""
        return tuple(replica for replica, at in self.observed.silent_at.items() if now - at < SUSPECT_NODE_S)

    def add_log_entry(
        self,
        now: float,
        kind: str,
        *,
        replica: str = "",
        reason: str = "",
        step: int | None = None,
        cost_s: float = 0.0,
        metrics: dict[str, float] | None = None,
    ) -> WriteLogEntry:
        """Add an entry to the event log; returns the action that writes it. `replica` '': it is about the job."""
        ledger = self.ledger
        round_id = ledger.rounds.newest.id if ledger.rounds.newest else 0
        at_step = ledger.step if step is None else step
        entry = EventLogEntry(round(now, 6), kind, replica, reason, round_id, at_step, cost_s, metrics or {})
        ledger.entry_count += 1
        ledger.recent_entries.append(entry)
        del ledger.recent_entries[:-MAX_RECENT_ENTRIES]
        if kind not in ROUTINE_KINDS:
            ledger.notable_entries.append((ledger.entry_count, entry))
            del ledger.notable_entries[:-MAX_NOTABLE_ENTRIES]
        return WriteLogEntry(ledger.entry_count, entry)

    def state_holders(self) -> list[Worker]:
        """The workers that a stopping job waits for, since they can write its last checkpoint."""
        return self.strategy.state_holders(self)

    def possible_donors(self, members: Collection[WorkerId]) -> list[WorkerId]:
        """Workers that may send the state to newcomers of a round of `members`: members, if any of them holds it."""
        holders = [holder.id for holder in self.present_holders()]
        return [holder for holder in holders if holder in members] or holders

    def present_holders(self) -> list[Worker]:
        """The present workers that hold the training state, in rank order."""
        workers = self.ledger.membership.workers
        return [workers[holder] for holder in self.ledger.rounds.holders if workers[holder].is_present]


def new_ledger(spec: JobSpec) -> Ledger:
    fleet = PsFleet(spec.ps.replicas or 0)
    schedule = sorted(spec.plan.batch_schedule.items())
    batches = [BatchChange(number, step, scale) for number, (step, scale) in enumerate(schedule, start=1)]
    return Ledger(
        desired_workers=spec.workers.replicas,
        failure_budget=FailureBudget(spec.workers.failure_budget),
        fleet=fleet,
        batch_changes=batches,
    )


def send_message(replica: ReplicaId, **message: object) -> SendMessage:
    """An action that sends a message, named as in `MasterMessage`: `send_message(worker, leave=pb.Leave(...))`."""
    return SendMessage(replica, pb.MasterMessage(**message))  # type: ignore[arg-type]
