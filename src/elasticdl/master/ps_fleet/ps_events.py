"""Events of the ps of a job, and decisions about them. The rules of machine/events.py apply."""

from __future__ import annotations

from typing import NamedTuple

from elasticdl.spec.ids import PsId

# ---- from ps


class PsConnected(NamedTuple):
    ps: PsId
    pid: int
    host: str
    address: str
    map_version: int  # of the slot map that it has in force
    leaving: bool


class PsHeartbeatReceived(NamedTuple):
    """Never journaled, like a worker's heartbeat."""

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
    backup_failure: str = ""  # why the backup of its slots is no longer complete
    busy_s: float = 0.0  # the age of the oldest request in work


class PsLeaving(NamedTuple):
    ps: PsId
    sequence: int
    reason: str


class TaskReported(NamedTuple):
    """A task of the fleet is done or failed."""

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


# ---- decisions


class PsStallNoticed(NamedTuple):
    """A ps has worked on one request for a large part of `ps_timeout_s`: the user is notified."""

    ps: PsId
    reason: str


class PsStalled(NamedTuple):
    """A ps sends heartbeats but does not finish a request: it is replaced."""

    ps: PsId
    reason: str


class BackupBroken(NamedTuple):
    """A ps reported that the backup of its slots is no longer complete."""

    ps: PsId
    reason: str


class PsDrained(NamedTuple):
    """A draining ps is not needed any more."""

    ps: PsId


class SlotsAssigned(NamedTuple):
    """The first slot map: `members` own all slots. Those in `unrestored` must restore theirs first."""

    members: tuple[PsId, ...]
    unrestored: tuple[PsId, ...]


class TaskAssigned(NamedTuple):
    """A task that changes which ps holds which slots (see master/ps_fleet/fleet.py)."""

    kind: str  # move, backup, promote or restore
    version: int  # of the slot map that is in force once it is done
    performer: PsId
    peer: PsId  # move, backup: the target; promote, restore: the owner before
    slots: tuple[int, ...]
    snapshot: str  # the directory to restore from; "": begin with empty slots


class TaskResolved(NamedTuple):
    """The performer of a task is gone; the slot map of its peer shows whether the task was done."""

    version: int
    is_done: bool


# Sent again after a reconnect, handled once. Their first two fields are ps and sequence.
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
