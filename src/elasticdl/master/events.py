"""What happened: everything the master's state can learn. Past tense, plain values, journaled as they stand.

Events are named tuples: the journal writes them as JSON arrays, and a million of them replay in seconds.
Those that begin with (worker, sequence) take effect once, however often a worker sends them again.
"""

from __future__ import annotations

from typing import NamedTuple

from elasticdl.master.exits import Exit as Exit
from elasticdl.master.phase import Outcome
from elasticdl.master.ps_events import PsEvent
from elasticdl.master.training_events import BatchScaled as BatchScaled
from elasticdl.master.training_events import EpochLoss as EpochLoss
from elasticdl.master.training_events import HeartbeatReceived as HeartbeatReceived
from elasticdl.master.training_events import LossesReported as LossesReported
from elasticdl.master.training_events import RoundStalled as RoundStalled
from elasticdl.master.training_events import ScriptsHalted as ScriptsHalted
from elasticdl.master.training_events import SpeedMeasured as SpeedMeasured
from elasticdl.master.training_events import StallEnded as StallEnded
from elasticdl.master.training_events import StallNoticed as StallNoticed
from elasticdl.master.training_events import WorkerStalled as WorkerStalled
from elasticdl.spec.ids import WorkerId


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
    exited: tuple[Exit, ...]


class ReplicaStarted(NamedTuple):
    replica: str
    pid: int


class ReplicaExited(NamedTuple):
    exit: Exit


class ReplicaWaits(NamedTuple):
    """A pod exists but does not run; again whenever the reason changes."""

    replica: str
    why: str
    is_trouble: bool = True  # it will not end by itself


class Detached(NamedTuple):
    """The terminal the job was attached to is gone."""


# ---- from workers


class WorkerGreeted(NamedTuple):
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


class SessionBroken(NamedTuple):
    worker: WorkerId


class WorkerReady(NamedTuple):
    worker: WorkerId
    sequence: int
    store_address: str = ""  # where peers meet from now on; "": where its greeting said


class RoundBroken(NamedTuple):
    worker: WorkerId
    sequence: int
    round: int
    why: str
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
    why: str
    progress: float = 0.0
    loss: float | None = None  # of the last step
    epoch: EpochLoss | None = None  # the one that step belongs to, as far as it was trained


class ModelExported(NamedTuple):
    worker: WorkerId
    sequence: int
    path: str


class WorkerNoticed(NamedTuple):
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
    why: str


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


class PlanFound(NamedTuple):
    worker: WorkerId
    sequence: int
    total_steps: int
    total_records: int
    records_per_epoch: int
    steps_per_epoch: int
    validation_records: int
    best_metric: str = ""  # what a callback of the model watches
    best_is_least: bool = False
    progress: str = ""  # of the data of a job that trains by leases, as its checkpoint says
    global_batch: int = 0


class LeaseReport(NamedTuple):
    lease: int
    done: int
    finished: bool
    failure: str
    sums: tuple[tuple[str, tuple[float, ...], float], ...]  # (metric, values, weight)


class Exchanged(NamedTuple):
    worker: WorkerId
    request: int
    reports: tuple[LeaseReport, ...]
    want: int
    steps: tuple[int, ...]


# ---- from people


class ScaleAsked(NamedTuple):
    workers: int  # 0: as many as before
    ps: int = 0
    batch_scale: int = 0


class StopAsked(NamedTuple):
    at_once: bool
    reason: str
    is_end: bool = False  # asked by a callback: the training is done, and its model is wanted


# ---- decided as time passed: facts from here on, so that replay need not know what time it was


class WorkerLaunched(NamedTuple):
    worker: WorkerId


class WorkerFellSilent(NamedTuple):
    worker: WorkerId
    reason: str


class WorkerReturned(NamedTuple):
    """Taken for lost, but heard again."""

    worker: WorkerId


class LeaveOverdue(NamedTuple):
    worker: WorkerId


class LeaseExpired(NamedTuple):
    lease: int


class Progressed(NamedTuple):
    step: int
    records: int


class Seat(NamedTuple):
    """One member of a round: computes logical ranks [first, first + ranks)."""

    worker: WorkerId
    first: int
    ranks: int
    donor: str  # "" unless it is a newcomer


class RoundPlanned(NamedTuple):
    round: int
    seats: tuple[Seat, ...]
    forced: bool
    reason: str


class RoundSeen(NamedTuple):
    """A heartbeat showed that a planned round was entered."""

    round: int


class ExportAsked(NamedTuple):
    """One of those that finished is to write the last checkpoint, and the model where `path` is given."""

    worker: WorkerId
    path: str


class PreparerChosen(NamedTuple):
    """This worker makes the first state of a job that trains by leases."""

    worker: WorkerId


class EvaluationDue(NamedTuple):
    """So much was trained by leases that it is time to evaluate."""

    step: int
    records: int


class SaveAsked(NamedTuple):
    """This worker is to write a checkpoint of a job that trains by leases."""

    worker: WorkerId
    step: int


class JobEnded(NamedTuple):
    phase: Outcome
    reason: str
    kill: bool


# (worker, sequence) first: sent again after a reconnect, effective once.
Sequenced = (
    WorkerReady
    | RoundBroken
    | RoundEntered
    | WorkerLeaving
    | SnapshotHeld
    | CheckpointWritten
    | WorkerFinished
    | ModelExported
    | WorkerNoticed
    | BadRecordFound
    | WorkerFailed
    | WorkerSaidGoodbye
    | PlanFound
    | BatchScaled
    | LossesReported
)

FromOutside = ReplicasListed | ReplicaStarted | ReplicaExited | ReplicaWaits | Detached | ScaleAsked | StopAsked
Unnumbered = WorkerGreeted | SessionBroken | Exchanged | HeartbeatReceived

Event = (
    Sequenced
    | FromOutside
    | Unnumbered
    | MasterStarted
    | JobResumed
    | WorkerLaunched
    | WorkerFellSilent
    | WorkerReturned
    | LeaveOverdue
    | LeaseExpired
    | Progressed
    | RoundPlanned
    | ScriptsHalted
    | RoundSeen
    | ExportAsked
    | PreparerChosen
    | EvaluationDue
    | SaveAsked
    | SpeedMeasured
    | StallNoticed
    | StallEnded
    | WorkerStalled
    | RoundStalled
    | JobEnded
    | PsEvent
)
