"""Everything that can happen to a job. Events are named in the past tense and hold plain values to be journaled."""

from __future__ import annotations

from typing import NamedTuple

from elasticdl.master.machine.phase import Outcome
from elasticdl.master.ps_fleet.ps_events import PsEvent
from elasticdl.spec.ids import ReplicaId, WorkerId


class ReplicaExit(NamedTuple):
    """How a replica's process ended. Code and signal are both None if that is not known."""

    replica: str
    pid: int
    code: int | None
    signal: int | None
    cause: str = ""  # of a pod: see launcher/kubernetes/pod_status.py; of a process: "oom" or ""
    reason: str = ""  # as the cluster reports it, or as the process itself left it behind
    peak_bytes: int = 0  # its peak memory; 0: not known


class HeartbeatReceived(NamedTuple):
    """Never journaled: the next heartbeat says the same again."""

    worker: WorkerId
    round: int
    step: int
    records: int
    loss: float
    step_s: float
    compute_s: float
    learning_rate: float
    # Since the round was entered:
    timed_steps: int = 0
    one_pass_step_s: float = 0.0  # of an update, converted to an update of one pass
    pass_s: float = 0.0  # the part of it that this worker computes
    # Of the training state:
    gradient_square: float = 0.0  # |g|² of the gradient; this and the next are 0 until they are known
    gradient_variance: float = 0.0  # trace of its covariance at one global batch
    progress: float = 0.0
    batch_scale: int = 1
    # For the watchdog of progress, see stalls.py:
    activity: int = 0  # an `Activity` of the wire
    activity_s: float = 0.0
    blocked_s: float = 0.0
    pause_reason: str = ""
    slow_step_s: float = 0.0
    joined_round: int = 0  # the round whose process group it has joined


class StallNoticed(NamedTuple):
    """A worker made no progress for half of its allowed time: the user is notified, and it writes its stacks."""

    worker: WorkerId
    reason: str


class StallEnded(NamedTuple):
    """A worker that was noticed made progress after all."""

    worker: WorkerId


class WorkerStalled(NamedTuple):
    """A worker that was noticed still makes no progress: it is replaced."""

    worker: WorkerId
    reason: str


class RoundStalled(NamedTuple):
    """A planned round is not entered, or its exchange does not end: it is planned again, without the `late` workers."""

    round: int
    late: tuple[WorkerId, ...]
    reason: str


class BatchChange(NamedTuple):
    """From `step` on, `scale` global batches make an update. Step -1: from the next update on, not known yet which."""

    id: int
    step: int
    scale: int


class BatchScaled(NamedTuple):
    """A change of the batch took effect."""

    worker: WorkerId
    sequence: int
    change: int
    step: int
    scale: int


class EpochLoss(NamedTuple):
    """The mean of the losses of an epoch, weighted by records."""

    epoch: int  # 1, 2, 3 …
    step: int  # its last step so far
    loss: float
    records: int


class LossesReported(NamedTuple):
    """A worker's part of the loss curve. With earlier reports, it has every point up to step `complete_until`."""

    worker: WorkerId
    sequence: int
    complete_until: int
    points: tuple[tuple[int, float, float, int], ...]  # (step, loss, learning rate, records so far), by step
    epochs: tuple[EpochLoss, ...]


class SpeedMeasured(NamedTuple):
    """The speed of updates of one pass with this number of workers on this number of machines."""

    nodes: int
    workers: int
    local_batch: int  # records in one pass of the worker that has the most
    step_s: float
    compute_s: float  # the part of it that the slowest worker computes

    @property
    def configuration(self) -> tuple[int, int, int]:
        return (self.nodes, self.workers, self.local_batch)


class ScriptsHalted(NamedTuple):
    """All members of a round of unmodified scripts must end them, since another round follows."""

    reason: str
    failed_worker: str  # the worker whose script failed; "": the workers changed


class MasterStarted(NamedTuple):
    """The first event of every master of the job."""

    pid: int


class JobResumed(NamedTuple):
    """The job resumes from this checkpoint. Handled once, by its first master."""

    step: int
    records: int
    records_per_epoch: int  # 0: not known
    path: str
    job: str  # the job that wrote it


# ---- from the launcher


class ReplicasListed(NamedTuple):
    running: tuple[tuple[str, int], ...]  # (replica, pid)
    exited: tuple[ReplicaExit, ...]


class ReplicaStarted(NamedTuple):
    replica: str
    pid: int


class ReplicaExited(NamedTuple):
    exit: ReplicaExit


class ReplicaDelayed(NamedTuple):
    """A pod exists but does not run. Sent again whenever the reason changes."""

    replica: str
    reason: str
    is_trouble: bool = True  # someone must act: waiting does not help


class TerminalDetached(NamedTuple):
    """The terminal to which the job was attached was closed."""


# ---- from workers


class WorkerConnected(NamedTuple):
    worker: WorkerId
    pid: int
    host: str
    store_address: str
    peer_address: str
    round: int
    step: int
    ready: bool
    leaving: bool
    cpu_capability: str = ""


class SessionLost(NamedTuple):
    replica: ReplicaId


class WorkerReady(NamedTuple):
    worker: WorkerId
    sequence: int
    store_address: str = ""  # where peers meet from now on; "": as its Hello said


class RoundFailed(NamedTuple):
    worker: WorkerId
    sequence: int
    round: int
    reason: str
    donor: str = ""  # the worker from which this newcomer got no state


class RoundEntered(NamedTuple):
    worker: WorkerId
    sequence: int
    round: int
    step: int
    gap_s: float


class WorkerLeaving(NamedTuple):
    worker: WorkerId
    sequence: int
    reason: str


class SnapshotHeld(NamedTuple):
    worker: WorkerId
    sequence: int
    step: int


class CheckpointWritten(NamedTuple):
    worker: WorkerId
    sequence: int
    step: int
    path: str
    seconds: float
    copy_s: float


class WorkerFinished(NamedTuple):
    worker: WorkerId
    sequence: int
    step: int
    records: int
    reason: str
    progress: float = 0.0
    loss: float | None = None  # of the last step
    epoch: EpochLoss | None = None  # the epoch of that step, as far as it was trained


class ModelExported(NamedTuple):
    worker: WorkerId
    sequence: int
    path: str


class NoticeReported(NamedTuple):
    """An incident that the worker handles itself, reported for the event log (see notices.py)."""

    worker: WorkerId
    sequence: int
    kind: str
    reason: str
    step: int


class BadRecordFound(NamedTuple):
    """A record that cannot be read or parsed was skipped."""

    worker: WorkerId
    sequence: int
    source: str
    record: int
    reason: str


class WorkerFailed(NamedTuple):
    worker: WorkerId
    sequence: int
    message: str
    wrong_job: bool
    permanent: bool


class WorkerSaidGoodbye(NamedTuple):
    worker: WorkerId
    sequence: int
    reason: str


class DataPlanReported(NamedTuple):
    worker: WorkerId
    sequence: int
    total_steps: int
    total_records: int
    records_per_epoch: int
    steps_per_epoch: int
    validation_records: int
    best_metric: str = ""  # the metric that a BestMetric callback watches
    is_lower_better: bool = False
    progress: str = ""  # of lease training: the progress through the data, from the checkpoint
    global_batch: int = 0


class LeaseReport(NamedTuple):
    lease: int
    done: int
    finished: bool
    failure: str
    sums: tuple[tuple[str, tuple[float, ...], float], ...]  # (metric, values, weight)


class ExchangeReceived(NamedTuple):
    worker: WorkerId
    request: int
    reports: tuple[LeaseReport, ...]
    max_leases: int
    steps: tuple[int, ...]


# ---- from users


class ScaleRequested(NamedTuple):
    workers: int  # 0: no change, as for the others
    ps: int = 0
    batch_scale: int = 0


class StopRequested(NamedTuple):
    at_once: bool
    reason: str
    is_training_done: bool = False  # a callback ends the training, and the model is exported


# ---- decisions, journaled as facts: replay does not need the heartbeats and the time that led to them


class ReplicaLaunched(NamedTuple):
    role: str  # "worker" or "ps"
    replica: ReplicaId


class ReplicaFellSilent(NamedTuple):
    """A replica sent nothing for too long: it is considered lost."""

    replica: ReplicaId
    reason: str


class WorkerReturned(NamedTuple):
    """A worker that was considered lost has sent a message again."""

    worker: WorkerId


class LeaveOverdue(NamedTuple):
    worker: WorkerId


class LeaseExpired(NamedTuple):
    lease: int


class ProgressRecorded(NamedTuple):
    step: int
    records: int


class RankAssignment(NamedTuple):
    """A member of a round: it computes logical ranks [first_logical_rank, first_logical_rank + logical_ranks)."""

    worker: WorkerId
    first_logical_rank: int
    logical_ranks: int
    donor: str  # of a newcomer: the worker that sends it the state; "": no newcomer


class RoundPlanned(NamedTuple):
    round: int
    members: tuple[RankAssignment, ...]
    is_forced: bool
    reason: str


class RoundEntryObserved(NamedTuple):
    """A heartbeat showed that a planned round was entered."""

    round: int


class ExportRequested(NamedTuple):
    """This worker must write the last checkpoint, and the model if `path` is given."""

    worker: WorkerId
    path: str


class InitializerChosen(NamedTuple):
    """This worker creates the first state of lease training."""

    worker: WorkerId


class EvaluationDue(NamedTuple):
    """Lease training has reached the next evaluation."""

    step: int
    records: int


class CheckpointRequested(NamedTuple):
    """This worker must write a checkpoint of lease training."""

    worker: WorkerId
    step: int


class JobEnded(NamedTuple):
    phase: Outcome
    reason: str
    kill: bool


# Sent again after a reconnect, handled once. Their first two fields are worker and sequence.
SequencedEvent = (
    WorkerReady
    | RoundFailed
    | RoundEntered
    | WorkerLeaving
    | SnapshotHeld
    | CheckpointWritten
    | WorkerFinished
    | ModelExported
    | NoticeReported
    | BadRecordFound
    | WorkerFailed
    | WorkerSaidGoodbye
    | DataPlanReported
    | BatchScaled
    | LossesReported
)

ExternalEvent = (
    ReplicasListed | ReplicaStarted | ReplicaExited | ReplicaDelayed | TerminalDetached | ScaleRequested | StopRequested
)
UnsequencedEvent = WorkerConnected | SessionLost | ExchangeReceived | HeartbeatReceived

Event = (
    SequencedEvent
    | ExternalEvent
    | UnsequencedEvent
    | MasterStarted
    | JobResumed
    | ReplicaLaunched
    | ReplicaFellSilent
    | WorkerReturned
    | LeaveOverdue
    | LeaseExpired
    | ProgressRecorded
    | RoundPlanned
    | ScriptsHalted
    | RoundEntryObserved
    | ExportRequested
    | InitializerChosen
    | EvaluationDue
    | CheckpointRequested
    | SpeedMeasured
    | StallNoticed
    | StallEnded
    | WorkerStalled
    | RoundStalled
    | JobEnded
    | PsEvent
)
