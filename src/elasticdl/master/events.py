"""What happened: everything the master's state can learn. Past tense, plain values, journaled as they stand.

Events are named tuples: the journal writes them as JSON arrays, and a million of them replay in seconds.
Those that begin with (worker, sequence) take effect once, however often a worker sends them again.
"""

from __future__ import annotations

from typing import NamedTuple

from elasticdl.master.phase import Outcome
from elasticdl.spec.ids import PsId, WorkerId


class MasterStarted(NamedTuple):
    """First event of every incarnation of the master."""

    pid: int


# ---- from the launcher


class Exit(NamedTuple):
    """How a replica's process ended; code and signal None: nobody could know."""

    replica: str
    pid: int
    code: int | None
    signal: int | None


class ReplicasListed(NamedTuple):
    running: tuple[tuple[str, int], ...]  # (replica, pid)
    exited: tuple[Exit, ...]


class ReplicaStarted(NamedTuple):
    replica: str
    pid: int


class ReplicaExited(NamedTuple):
    exit: Exit


class Detached(NamedTuple):
    """The terminal the job was attached to is gone."""


# ---- from workers


class WorkerGreeted(NamedTuple):
    worker: WorkerId
    pid: int
    host: str
    store_address: str
    handover_address: str
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


class RoundBroken(NamedTuple):
    worker: WorkerId
    sequence: int
    round: int
    why: str


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


class ModelExported(NamedTuple):
    worker: WorkerId
    sequence: int
    path: str


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


# ---- from ps


class PsGreeted(NamedTuple):
    ps: PsId
    pid: int
    host: str
    address: str
    map_version: int  # in force there
    leaving: bool


class PsBeatReceived(NamedTuple):
    """Never journaled, as a worker's heartbeat."""

    ps: PsId
    map_version: int
    rows: int
    bytes: int
    requests: int
    applied: int
    repeated: int
    refused: int
    malformed: int
    lock_wait_s: float
    staleness: tuple[int, ...]  # pushes by staleness: 0, 1, 2-3, 4-7 …
    clock: int


class PsLeaving(NamedTuple):
    ps: PsId
    sequence: int
    reason: str


class SlotsMoved(NamedTuple):
    """A task of the fleet is done, or could not be."""

    ps: PsId
    sequence: int
    version: int
    rows: int
    pause_s: float
    rolled_back: int
    failure: str


class PsFailed(NamedTuple):
    ps: PsId
    sequence: int
    message: str
    wrong_job: bool
    permanent: bool


class PsSaidGoodbye(NamedTuple):
    ps: PsId
    sequence: int
    reason: str


# ---- from people


class ScaleAsked(NamedTuple):
    workers: int  # 0: as many as before
    ps: int = 0


class StopAsked(NamedTuple):
    at_once: bool
    reason: str


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


class PsLaunched(NamedTuple):
    ps: PsId


class PsFellSilent(NamedTuple):
    ps: PsId
    reason: str


class PsDrained(NamedTuple):
    """It was to leave, and nobody needs it any more."""

    ps: PsId


class SlotsDealt(NamedTuple):
    """The first slot map: these ps hold all slots. Those in `blank` must restore theirs first."""

    members: tuple[PsId, ...]
    blank: tuple[PsId, ...]


class TaskGiven(NamedTuple):
    """What changes who holds what, see master/fleet.py. `other` is the one it goes to, or the one it is of."""

    kind: str
    version: int  # of the map that is in force once it is done
    performer: PsId
    other: PsId
    slots: tuple[int, ...]
    directory: str  # of the cut that is restored


class TaskSettled(NamedTuple):
    """Whoever performed it is gone; the other one's map tells whether it was done."""

    version: int
    is_done: bool


class JobEnded(NamedTuple):
    phase: Outcome
    reason: str
    kill: bool


Event = (
    MasterStarted
    | ReplicasListed
    | ReplicaStarted
    | ReplicaExited
    | Detached
    | WorkerGreeted
    | SessionBroken
    | WorkerReady
    | RoundBroken
    | RoundEntered
    | WorkerLeaving
    | SnapshotHeld
    | CheckpointWritten
    | WorkerFinished
    | ModelExported
    | WorkerFailed
    | WorkerSaidGoodbye
    | PlanFound
    | Exchanged
    | HeartbeatReceived
    | PsGreeted
    | PsBeatReceived
    | PsLeaving
    | SlotsMoved
    | PsFailed
    | PsSaidGoodbye
    | ScaleAsked
    | StopAsked
    | WorkerLaunched
    | WorkerFellSilent
    | WorkerReturned
    | LeaveOverdue
    | LeaseExpired
    | Progressed
    | RoundPlanned
    | RoundSeen
    | ExportAsked
    | PsLaunched
    | PsFellSilent
    | PsDrained
    | SlotsDealt
    | TaskGiven
    | TaskSettled
    | JobEnded
)

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
    | WorkerFailed
    | WorkerSaidGoodbye
    | PlanFound
)

# (ps, sequence) first, likewise.
PsSequenced = PsLeaving | SlotsMoved | PsFailed | PsSaidGoodbye

# Never journaled: what they say is learned again from the next one.
Beat = HeartbeatReceived | PsBeatReceived
BEATS: tuple[type, ...] = (HeartbeatReceived, PsBeatReceived)
