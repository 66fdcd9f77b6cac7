"""Everything that can happen to a job: past tense, plain values, journaled as they are."""

from __future__ import annotations

from typing import NamedTuple

from elasticdl.master.machine.phase import Outcome
from elasticdl.master.ps_fleet.ps_events import PsEvent
from elasticdl.spec.ids import ReplicaId, WorkerId


class ReplicaExit(NamedTuple):
    """How a replica's process ended; code and signal None: nobody could know."""

    replica: str
    pid: int
    code: int | None
    signal: int | None
    cause: str = (
        ""  # of a pod, see launcher/kubernetes/pod_status.py; of a process, whether the kernel's OOM killer ended it
    )
    reason: str = ""  # in the words of the cluster, or left behind by the process itself
    peak_bytes: int = 0  # the most memory it had; 0: not known


class HeartbeatReceived(NamedTuple):
    """Never journaled: what it says is learned again from the next one."""

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
    one_pass_step_s: float = 0.0  # an update as if it had one pass only
    pass_s: float = 0.0  # of it, what this worker computes
    # Of the training state:
    gradient_square: float = 0.0  # |g|² of the gradient; both are 0 until they are known
    gradient_variance: float = 0.0  # trace of its covariance at one global batch
    progress: float = 0.0
    batch_scale: int = 1
    # For the watchdog of progress, see stalls.py:
    activity: int = 0  # an `Activity` of the wire
    activity_s: float = 0.0
    blocked_s: float = 0.0
    pause_reason: str = ""
    slow_step_s: float = 0.0
    joined_round: int = 0  # the round whose group it has


class StallNoticed(NamedTuple):
    """A worker has come to no step for half as long as it may: people are told, and it writes down where it is."""

    worker: WorkerId
    reason: str


class StallEnded(NamedTuple):
    """It went on after all."""

    worker: WorkerId


class WorkerStalled(NamedTuple):
    """A worker that was noticed did not go on: it is replaced."""

    worker: WorkerId
    reason: str


class RoundStalled(NamedTuple):
    """A round that was planned is not entered, or its exchange does not end: it is planned anew.

    `late` are those that did not get ready; the others go on without them.
    """

    round: int
    late: tuple[WorkerId, ...]
    reason: str


class BatchChange(NamedTuple):
    """From `step` on, `scale` global batches make an update. Step -1: from the next one on, which nobody named yet."""

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
    step: int  # its newest
    loss: float
    records: int


class LossesReported(NamedTuple):
    """A worker's part of the loss curve: with what was reported before, every point up to the step `until`."""

    worker: WorkerId
    sequence: int
    complete_until: int
    points: tuple[tuple[int, float, float, int], ...]  # (step, loss, learning rate, records so far), by step
    epochs: tuple[EpochLoss, ...]


class SpeedMeasured(NamedTuple):
    """How fast updates of one pass are with so many workers on so many machines."""

    nodes: int
    workers: int
    local_batch: int  # records in one pass, of the worker that has most of them
    step_s: float
    compute_s: float  # of it, what the slowest worker computes

    @property
    def configuration(self) -> tuple[int, int, int]:
        return (self.nodes, self.workers, self.local_batch)


class ScriptsHalted(NamedTuple):
    """The members of a round of unmodified scripts are to end them: another round follows."""

    reason: str
    failed_worker: str  # the worker whose script failed by itself; "": the workers changed


class MasterStarted(NamedTuple):
    """First event of every incarnation of the master."""

    pid: int


class JobResumed(NamedTuple):
    """The job goes on from this checkpoint. Told once, by its first master."""

    step: int
    records: int
    records_per_epoch: int  # 0: not known
    path: str
    job: str  # that wrote it


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
    """A pod exists but does not run; again whenever the reason changes."""

    replica: str
    reason: str
    is_trouble: bool = True  # it will not end by itself


class TerminalDetached(NamedTuple):
    """The terminal the job was attached to is gone."""


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
    store_address: str = ""  # where peers meet from now on; "": where its greeting said


class RoundFailed(NamedTuple):
    worker: WorkerId
    sequence: int
    round: int
    reason: str
    donor: str = ""  # of a newcomer that got no state from it


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
    epoch: EpochLoss | None = None  # the one that step belongs to, as far as it was trained


class ModelExported(NamedTuple):
    worker: WorkerId
    sequence: int
    path: str


class NoticeReported(NamedTuple):
    """Something the worker deals with itself, told for the event log: see notices.py."""

    worker: WorkerId
    sequence: int
    kind: str
    reason: str
    step: int


class BadRecordFound(NamedTuple):
    """A record that cannot be read or understood was skipped."""

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
    best_metric: str = ""  # what a callback of the model watches
    is_lower_better: bool = False
    progress: str = ""  # of the data of a job that trains by leases, as its checkpoint says
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


# ---- from people


class ScaleRequested(NamedTuple):
    workers: int  # 0: as many as before
    ps: int = 0
    batch_scale: int = 0


class StopRequested(NamedTuple):
    at_once: bool
    reason: str
    is_training_done: bool = False  # asked by a callback: the training is done, and its model is wanted


# ---- decided as time passed: facts from here on, so that replay need not know what time it was


class ReplicaLaunched(NamedTuple):
    role: str  # "worker" or "ps"
    replica: ReplicaId


class ReplicaFellSilent(NamedTuple):
    """Nothing was heard of it for too long: it is taken for lost."""

    replica: ReplicaId
    reason: str


class WorkerReturned(NamedTuple):
    """Taken for lost, but heard again."""

    worker: WorkerId


class LeaveOverdue(NamedTuple):
    worker: WorkerId


class LeaseExpired(NamedTuple):
    lease: int


class ProgressRecorded(NamedTuple):
    step: int
    records: int


class RankAssignment(NamedTuple):
    """One member of a round: computes logical ranks [first, first + ranks)."""

    worker: WorkerId
    first_logical_rank: int
    logical_ranks: int
    donor: str  # "" unless it is a newcomer


class RoundPlanned(NamedTuple):
    round: int
    members: tuple[RankAssignment, ...]
    is_forced: bool
    reason: str


class RoundEntryObserved(NamedTuple):
    """A heartbeat showed that a planned round was entered."""

    round: int


class ExportRequested(NamedTuple):
    """One of those that finished is to write the last checkpoint, and the model where `path` is given."""

    worker: WorkerId
    path: str


class InitializerChosen(NamedTuple):
    """This worker makes the first state of a job that trains by leases."""

    worker: WorkerId


class EvaluationDue(NamedTuple):
    """So much was trained by leases that it is time to evaluate."""

    step: int
    records: int


class CheckpointRequested(NamedTuple):
    """This worker is to write a checkpoint of a job that trains by leases."""

    worker: WorkerId
    step: int


class JobEnded(NamedTuple):
    phase: Outcome
    reason: str
    kill: bool


# (worker, sequence) first: sent again after a reconnect, effective once.
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
