"""Decisions about the ps of a job: launches, the first slot map, the next task, releases, silence. Pure."""

from __future__ import annotations

from elasticdl.master.machine.events import Event, ReplicaFellSilent, ReplicaLaunched
from elasticdl.master.machine.state import MasterState
from elasticdl.master.ps_fleet import fleet as fleets
from elasticdl.master.ps_fleet.fleet import MOVE
from elasticdl.master.ps_fleet.ps_events import (
    BackupBroken,
    PsDrained,
    PsStalled,
    PsStallNoticed,
    SlotsAssigned,
    TaskResolved,
)
from elasticdl.spec import PsId
from elasticdl.spec.ids import ReplicaId

# The first slot map waits at most this long for missing ps; those get their slots later, while workers train.
MAX_START_WAIT_S = 10.0
# A replacement is launched at most this much later, so that the backup of the lost ps can be promoted first.
MAX_LAUNCH_WAIT_S = 1.0
# A ps that is silent for this many times `heartbeat_timeout_s` is considered lost, later if rows would be lost with it:
# a silent ps may come back, and two silent ones are more likely cut off from the master than dead.
_SILENCE_FACTOR, _LAST_COPY_SILENCE_FACTOR = 3.0, 12.0
# Fractions of `ps_timeout_s`, after which waiting workers fail: the user is notified; the ps is replaced.
NOTICE_FRACTION, STALLED_FRACTION = 0.4, 0.8


def next_decision(job: MasterState, now: float) -> Event | None:
    if not job.ledger.fleet.desired:
        return None
    for decide in (
        _decide_silent,
        _decide_stalled,
        _decide_broken_backup,
        _decide_task_outcome,
        _decide_launch,
        _decide_first_slots,
        _decide_task,
    ):
        if (event := decide(job, now)) is not None:
            return event
    return None


def _decide_silent(job: MasterState, now: float) -> Event | None:
    timing = job.spec.timing
    for ps in job.ledger.fleet.present_ps():
        if not ps.reported_pid or ps.has_said_goodbye:
            continue
        # After a restart of the master, its ps need a moment to reconnect.
        silent_s = now - max(
            job.observed.heard_at.get(ps.id, 0.0), job.observed.watching_since + timing.heartbeat_timeout_s
        )
        silence_factor = _LAST_COPY_SILENCE_FACTOR if _holds_last_copy(job, ps.id, now) else _SILENCE_FACTOR
        if silent_s >= silence_factor * timing.heartbeat_timeout_s and _others_are_heard(job, ps.id, now):
            return ReplicaFellSilent(ps.id, f"silent for {silent_s:.2f} s")
    return None


def _decide_stalled(job: MasterState, now: float) -> Event | None:
    """A ps that sends heartbeats but answers no requests: replaced before the waiting workers fail."""
    fleet, ps_timeout_s = job.ledger.fleet, job.spec.timing.ps_timeout_s
    if not job.spec.timing.stall_timeout_s or fleet.task is not None:
        return None  # requests may wait until slots have moved
    for ps in fleet.present_ps():
        observation = job.observed.ps.get(ps.id)
        heartbeat = observation.heartbeat if observation is not None else None
        busy_s = heartbeat.busy_s if heartbeat is not None else 0.0
        reason = f"has worked on one request for {busy_s:.0f} s; {STALLED_FRACTION * ps_timeout_s:.0f} s are allowed"
        if not ps.stall_reason and busy_s >= NOTICE_FRACTION * ps_timeout_s:
            return PsStallNoticed(ps.id, reason)
        if ps.stall_reason and busy_s >= STALLED_FRACTION * ps_timeout_s:
            return PsStalled(ps.id, reason)
    return None


def _holds_last_copy(job: MasterState, ps: PsId, now: float) -> bool:
    """Whether a ps holds rows of which no ps that the master hears steadily has a copy."""
    fleet, observed, heartbeat_timeout_s = job.ledger.fleet, job.observed, job.spec.timing.heartbeat_timeout_s

    def is_heard(other_ps: PsId) -> bool:
        is_steady = now - observed.heard_since.get(other_ps, now) >= _SILENCE_FACTOR * heartbeat_timeout_s
        is_recent = now - observed.heard_at.get(other_ps, 0.0) < heartbeat_timeout_s
        return fleet.ps[other_ps].is_present and is_steady and is_recent

    backup = fleet.backups.get(ps)
    if fleet.slots_of(ps) and not (backup and is_heard(backup)):
        return True
    return not all(is_heard(owner) for owner, holder in fleet.backups.items() if holder == ps and fleet.slots_of(owner))


def _others_are_heard(job: MasterState, ps: PsId, now: float) -> bool:
    """Whether another replica is heard, so that the silence is not that of the whole machine."""
    heartbeat_timeout_s, observed = job.spec.timing.heartbeat_timeout_s, job.observed
    others: list[ReplicaId] = [other_ps.id for other_ps in job.ledger.fleet.present_ps() if other_ps.id != ps]
    others += [worker.id for worker in job.ledger.membership.present_workers()]
    return any(
        now - observed.heard_at.get(other_ps, 0.0) < heartbeat_timeout_s
        and now - observed.heard_since.get(other_ps, now) >= heartbeat_timeout_s
        for other_ps in others
    )


def _decide_broken_backup(job: MasterState, now: float) -> Event | None:
    for ps in job.ledger.fleet.backups:
        observation = job.observed.ps.get(ps)
        heartbeat = observation.heartbeat if observation is not None else None
        if heartbeat is not None and heartbeat.backup_failure:
            return BackupBroken(ps, heartbeat.backup_failure)
    return None


def _decide_task_outcome(job: MasterState, now: float) -> Event | None:
    """A task whose performer is gone. The slot map in force on its peer shows whether it was done."""
    fleet = job.ledger.fleet
    task = fleet.task
    if task is None or fleet.ps[task.performer].is_present:
        return None
    peer = fleet.ps[task.peer]
    if task.kind != MOVE or not peer.is_serving:
        return TaskResolved(task.version, False)
    observation = job.observed.ps.get(peer.id)
    # What the performer sent before its end may still be on its way.
    if (
        observation is None
        or observation.heard_at < fleet.ps[task.performer].since + 2 * job.spec.timing.heartbeat_interval_s
    ):
        return None
    return TaskResolved(task.version, observation.map_version >= task.version)


def _decide_launch(job: MasterState, now: float) -> Event | None:
    fleet = job.ledger.fleet
    if not job.observed.has_launcher or now < job.ledger.failure_budget.relaunch_at:
        return None
    # A ps that reported a failure has not exited yet: its exit is counted, and the delay begins then.
    if any(ps.failure and ps.has_said_goodbye and not ps.has_exited for ps in fleet.ps.values()):
        return None
    # A starting ps takes processors from the one that takes over: wait a moment for that.
    lost = [fleet.ps[owner] for owner in fleet.lost_owners() if owner in fleet.backups]
    if any(now - ps.since < MAX_LAUNCH_WAIT_S for ps in lost):
        return None
    return ReplicaLaunched("ps", fleet.next_id()) if len(fleet.active_ps()) < fleet.desired else None


def _decide_first_slots(job: MasterState, now: float) -> Event | None:
    fleet = job.ledger.fleet
    serving = fleet.serving_ids()
    if fleet.version or not serving:
        return None
    if len(serving) < fleet.desired and now - fleet.last_joined_at < MAX_START_WAIT_S:
        return None
    return SlotsAssigned(tuple(serving), tuple(serving) if job.initial_snapshot else ())


def _decide_task(job: MasterState, now: float) -> Event | None:
    fleet = job.ledger.fleet
    inputs = fleet.task_inputs
    if inputs == job.observed.settled_fleet or now < fleet.retry_at:
        return None
    if (ps := fleets.find_drained_ps(fleet)) is not None:
        return PsDrained(ps)
    directory = job.ledger.checkpoint[1] if job.ledger.checkpoint else job.initial_snapshot
    task = fleets.next_task(fleet, job.spec.ps.backups, directory)
    if task is None:
        job.observed.settled_fleet = inputs
    return task
