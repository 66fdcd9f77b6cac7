"""What happens to the ps of a job, and what is decided about them: by the rules of machine/events.py."""

from __future__ import annotations

from typing import NamedTuple

from elasticdl.spec.ids import PsId

# ---- from ps


class PsConnected(NamedTuple):
    ps: PsId
    pid: int
    host: str
    address: str
    map_version: int  # in force there
    leaving: bool


class PsHeartbeatReceived(NamedTuple):
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
    backup_failure: str = ""  # why the copy it has elsewhere is not whole any more
    busy_s: float = 0.0  # for so long it has been at one request


class PsLeaving(NamedTuple):
    ps: PsId
    sequence: int
    reason: str


class TaskReported(NamedTuple):
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


# ---- decided as time passed


class PsStallNoticed(NamedTuple):
    """It has been at one request for half as long as a worker waits for an answer."""

    ps: PsId
    reason: str


class PsStalled(NamedTuple):
    """It sends heartbeats but does not come to an end with a request: it is replaced."""

    ps: PsId
    reason: str


class BackupBroken(NamedTuple):
    """The copies of this ps are not whole any more, as it said itself."""

    ps: PsId
    reason: str


class PsDrained(NamedTuple):
    """It was to leave, and nobody needs it any more."""

    ps: PsId


class SlotsAssigned(NamedTuple):
    """The first slot map: these ps hold all slots. Those in `unrestored` must restore theirs first."""

    members: tuple[PsId, ...]
    unrestored: tuple[PsId, ...]


class TaskAssigned(NamedTuple):
    """What changes who holds what, see master/ps_fleet/fleet.py. `other` is the one it goes to, or the one it is of."""

    kind: str
    version: int  # of the map that is in force once it is done
    performer: PsId
    other: PsId
    slots: tuple[int, ...]
    snapshot: str  # that is restored


class TaskResolved(NamedTuple):
    """Whoever performed it is gone; the other one's map tells whether it was done."""

    version: int
    is_done: bool


# (ps, sequence) first: sent again after a reconnect, effective once.
SequencedPsEvent = PsLeaving | TaskReported | PsFailed | PsSaidGoodbye

PsEvent = (
    PsConnected
    | PsHeartbeatReceived
    | SequencedPsEvent
    | PsStallNoticed
    | PsStalled
    | BackupBroken
    | PsDrained
    | SlotsAssigned
    | TaskAssigned
    | TaskResolved
)
