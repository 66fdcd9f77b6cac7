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
from elasticdl.spec import PsId, WorkerId

# The first map waits so long at most for those that have not come yet: they get their slots while others train.
MAX_START_WAIT_S = 10.0
# A replacement waits so long at most until those that have copies of the lost one's slots own them.
MAX_LAUNCH_WAIT_S = 1.0
# A ps serves without a pause: one that says nothing for so many times `heartbeat_timeout_s` is taken for lost, and
# later if rows would be lost with it. A silent ps may come back, and two at once are more likely cut off from the
# master than dead.
_SILENCE_FACTOR, _LAST_COPY_SILENCE_FACTOR = 3.0, 12.0
# Of `ps_timeout_s`, after which a worker fails that waits for an answer: people are told; the ps is replaced.
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
        # After a restart of the master its ps need a moment to find it again.
        quiet_s = now - max(
            job.observed.heard_at.get(ps.id, 0.0), job.observed.watching_since + timing.heartbeat_timeout_s
        )
        patience = _LAST_COPY_SILENCE_FACTOR if _holds_last_copy(job, ps.id, now) else _SILENCE_FACTOR
        if quiet_s >= patience * timing.heartbeat_timeout_s and _others_are_heard(job, ps.id, now):
            return ReplicaFellSilent(ps.id, f"silent for {quiet_s:.2f} s")
    return None


def _decide_stalled(job: MasterState, now: float) -> Event | None:
    """Who answers heartbeats but no requests: replaced before the workers that wait for its answer fail."""
    fleet, ps_timeout_s = job.ledger.fleet, job.spec.timing.ps_timeout_s
    if not job.spec.timing.stall_timeout_s or fleet.task is not None:
        return None  # while slots move a request may wait for the end of that
    for ps in fleet.present_ps():
        seen = job.observed.ps.get(ps.id)
        busy_s = seen.heartbeat.busy_s if seen is not None and seen.heartbeat is not None else 0.0
        reason = f"has been at one request for {busy_s:.0f} s; {STALLED_FRACTION * ps_timeout_s:.0f} s are allowed"
        if not ps.stall_reason and busy_s >= NOTICE_FRACTION * ps_timeout_s:
            return PsStallNoticed(ps.id, reason)
        if ps.stall_reason and busy_s >= STALLED_FRACTION * ps_timeout_s:
            return PsStalled(ps.id, reason)
    return None


def _holds_last_copy(job: MasterState, ps: PsId, now: float) -> bool:
    """Whether it has rows that nobody has whom the master has heard all the while."""
    fleet, seen, heartbeat_timeout_s = job.ledger.fleet, job.observed, job.spec.timing.heartbeat_timeout_s

    def is_heard(other: PsId) -> bool:
        is_awake = now - seen.heard_since.get(other, now) >= _SILENCE_FACTOR * heartbeat_timeout_s
        return fleet.ps[other].is_present and is_awake and now - seen.heard_at.get(other, 0.0) < heartbeat_timeout_s

    copies = fleet.backups.get(ps)
    if fleet.slots_of(ps) and not (copies and is_heard(copies)):
        return True
    return not all(is_heard(of) for of, holder in fleet.backups.items() if holder == ps and fleet.slots_of(of))


def _others_are_heard(job: MasterState, ps: PsId, now: float) -> bool:
    """Whether the machine as a whole is awake: then the silence is this one's own."""
    heartbeat_timeout_s, seen = job.spec.timing.heartbeat_timeout_s, job.observed
    others: list[WorkerId | PsId] = [one.id for one in job.ledger.fleet.present_ps() if one.id != ps]
    others += [worker.id for worker in job.ledger.membership.present_workers()]
    return any(
        now - seen.heard_at.get(other, 0.0) < heartbeat_timeout_s
        and now - seen.heard_since.get(other, now) >= heartbeat_timeout_s
        for other in others
    )


def _decide_broken_backup(job: MasterState, now: float) -> Event | None:
    for ps in job.ledger.fleet.backups:
        seen = job.observed.ps.get(ps)
        if seen is not None and seen.heartbeat is not None and seen.heartbeat.backup_failure:
            return BackupBroken(ps, seen.heartbeat.backup_failure)
    return None


def _decide_task_outcome(job: MasterState, now: float) -> Event | None:
    """A task whose performer is gone: what the other one has in force tells whether it was done."""
    fleet = job.ledger.fleet
    task = fleet.task
    if task is None or fleet.ps[task.performer].is_present:
        return None
    other = fleet.ps[task.other]
    if task.kind != MOVE or not other.is_serving:
        return TaskResolved(task.version, False)
    seen = job.observed.ps.get(other.id)
    # What the dead one had sent may still be on its way for a moment.
    if seen is None or seen.heard_at < fleet.ps[task.performer].since + 2 * job.spec.timing.heartbeat_interval_s:
        return None
    return TaskResolved(task.version, seen.map_version >= task.version)


def _decide_launch(job: MasterState, now: float) -> Event | None:
    fleet = job.ledger.fleet
    if not job.observed.has_launcher or now < job.ledger.failure_budget.relaunch_at:
        return None
    # One that said why it fails has not ended yet: its exit is counted, and the pause begins there.
    if any(ps.failure and ps.has_said_goodbye and not ps.has_exited for ps in fleet.ps.values()):
        return None
    # One that starts takes the processors from whoever takes over: it waits a moment for that.
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
    standing = fleet.task_inputs
    if standing == job.observed.settled_fleet or now < fleet.retry_at:
        return None
    if (ps := fleets.find_drained_ps(fleet)) is not None:
        return PsDrained(ps)
    directory = job.ledger.checkpoint[1] if job.ledger.checkpoint else job.initial_snapshot
    task = fleets.next_task(fleet, job.spec.ps.backups, directory)
    if task is None:
        job.observed.settled_fleet = standing
    return task
