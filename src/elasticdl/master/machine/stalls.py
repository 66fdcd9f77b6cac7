"""The watchdog of progress: detects workers that send heartbeats but make no progress. Pure.

Heartbeats say what the training thread of a worker does, for how long, and for how long it has been blocked
(worker/activity.py). In an all-reduce all members wait for the slowest: members in the exchange have arrived, so the
stalled worker is outside of it. The user is notified first, and the worker writes its stacks to its log. If it still
makes no progress, it is replaced. If all members have arrived but the exchange does not end, or if a round is not
entered, the round is planned again.

A worker that does something of unknown duration reports a `pause_reason` and then has unlimited time. A worker that
sends no heartbeats (it is frozen, or deadlocked in native code that holds the interpreter's lock) is considered lost
at once if other workers can continue without it (silence.py). Otherwise it has `slow_s`, like one that is not blocked.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from elasticdl.master.machine.actions import Action, SignalReplica
from elasticdl.master.machine.ending import charge_failure_budget
from elasticdl.master.machine.events import Event, JobEnded, RoundStalled, StallEnded, StallNoticed, WorkerStalled
from elasticdl.master.machine.membership import ExitCause, Worker, WorkerState
from elasticdl.master.machine.phase import PendingPhase, RunningPhase
from elasticdl.master.machine.silence import last_heard_at
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.machine.worker_life import remove_worker, reset_worker
from elasticdl.master.strategies.rounds import Round
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import Phase, WorkerId
from elasticdl.stacks import DUMP_SIGNAL

Actions = list[Action]

# A worker that is not blocked, or does something that is not part of every step, has this many times `blocked_s`.
SLOW_FACTOR = 6.0
NOTICE_FRACTION = 0.5  # of the allowed time: then the user is notified
ENTRY_FACTOR = 3.0  # times `round_timeout_s`: a forced round that is not entered by then is planned again
MAX_STALLED_ROUNDS = 3  # rounds in a row that were planned again because they made no progress

_ACTIVITY_TEXT = {
    pb.STARTING: "is starting",
    pb.RECEIVING: "receives the state",
    pb.FIRST_STEP: "computes its first step",
    pb.COMPUTING: "computes",
    pb.READING: "waits for records",
}


class ReportedActivity(NamedTuple):
    """What a worker's newest heartbeat says about its training thread."""

    activity: int  # an `Activity` of the wire
    activity_s: float
    blocked_s: float
    is_paused: bool
    joined_round: int  # the round whose process group it has joined


class StallLimits(NamedTuple):
    """How long a worker may make no progress."""

    blocked_s: float  # if its thread is blocked between two exchanges; 0: the watchdog is off
    slow_s: float  # in all other cases


def compute_limits(stall_s: float, stall_steps: int, slow_step_s: float) -> StallLimits:
    """The limits of a job. `slow_step_s`: 95 of 100 recent steps of the slowest worker took less."""
    blocked_s = max(stall_s, stall_steps * slow_step_s) if stall_s else 0.0
    return StallLimits(blocked_s, SLOW_FACTOR * blocked_s)


def used_fraction(report: ReportedActivity, limits: StallLimits) -> float:
    """The fraction of its allowed time that a worker has used without progress; from 1 on it must be replaced."""
    if report.is_paused or not limits.blocked_s:
        return 0.0
    activity_fraction = report.activity_s / limits.slow_s
    match report.activity:
        case pb.COMPUTING:
            return max(activity_fraction, report.blocked_s / limits.blocked_s)
        case pb.FIRST_STEP | pb.READING | pb.RECEIVING:
            return activity_fraction
        case pb.STARTING:  # a download may take hours: only a notice, unless the thread is blocked
            return max(min(activity_fraction, NOTICE_FRACTION), report.blocked_s / limits.slow_s)
    return 0.0  # it waits for other workers


def is_exchange_stalled(round_id: int, reports: Sequence[ReportedActivity], limits: StallLimits) -> bool:
    """Whether all members are in the exchange of the round, and it does not end."""
    return bool(limits.blocked_s and reports) and all(
        report.activity == pb.EXCHANGING and report.joined_round == round_id and report.activity_s >= limits.blocked_s
        for report in reports
    )


def find_late_workers(
    newest: Round, reports: Mapping[WorkerId, ReportedActivity], waited_s: float, enter_s: float, limits: StallLimits
) -> tuple[WorkerId, ...] | None:
    """The workers that keep a forced round from being entered; () if none can be blamed. None: nothing is wrong yet."""
    if not limits.blocked_s or waited_s < enter_s or len(reports) < len(newest.workers):
        return None
    if any(report.is_paused for report in reports.values()):
        return None
    ready = [worker for worker in newest.workers if reports[worker].joined_round == newest.id]
    late = tuple(worker for worker in newest.workers if worker not in ready and _is_late(reports[worker], limits))
    if ready and late and len(ready) + len(late) == len(newest.workers):
        return late
    if not ready and all(reports[worker].activity == pb.ENTERING for worker in newest.workers):
        return ()  # its process group cannot be formed
    are_ready_entering = all(reports[worker].activity == pb.ENTERING for worker in ready)
    are_all_slow = all(reports[worker].activity_s >= limits.slow_s for worker in newest.workers)
    return () if len(ready) == len(newest.workers) and are_ready_entering and are_all_slow else None


def _is_late(report: ReportedActivity, limits: StallLimits) -> bool:
    """Whether a worker should have begun to enter the round; what not every step does may take longer."""
    if report.activity in (pb.FIRST_STEP, pb.READING):
        return report.activity_s >= limits.slow_s
    return True


# ---- decisions


def decide_round_stall(job: MasterState, now: float) -> Event | None:
    """In all-reduce training: a worker that makes no progress, or a round that is not entered or does not end."""
    return decide_script_stall(job, now) or _check_round(job, current_limits(job), now)


def decide_script_stall(job: MasterState, now: float) -> Event | None:
    """In training by scripts: a worker that makes no progress."""
    limits = current_limits(job)
    if not _is_watched(job, limits):
        return None
    for worker in job.ledger.membership.present_workers():
        if (event := _check_worker(job, worker, limits, now)) is not None:
            return event
    return None


def decide_lease_stall(job: MasterState, now: float) -> Event | None:
    """In a job that only takes leases: a worker whose lease made no progress for half of `lease_s`."""
    limits, lease_s = current_limits(job), job.spec.timing.lease_s
    late = {
        lease.worker
        for queue in job.strategy.open_queues(job)
        for lease in queue.overdue_leases(now, NOTICE_FRACTION * lease_s)
    }
    for worker in job.ledger.membership.present_workers():
        if worker.state in (WorkerState.LAUNCHING, WorkerState.STARTING):
            if limits.blocked_s and (event := _check_worker(job, worker, limits, now)) is not None:
                return event
            continue
        if worker.id in late and not worker.stall_reason:
            return StallNoticed(
                worker.id, f"has reported no progress of its lease for {NOTICE_FRACTION * lease_s:.0f} s"
            )
        if worker.stall_reason and worker.id not in late:
            return StallEnded(worker.id)
    return None


def _is_watched(job: MasterState, limits: StallLimits) -> bool:
    is_running = isinstance(job.ledger.phase, PendingPhase | RunningPhase)
    return bool(limits.blocked_s) and is_running and _is_fleet_stable(job)


def current_limits(job: MasterState) -> StallLimits:
    timing = job.spec.timing
    return compute_limits(timing.stall_timeout_s, timing.stall_steps, _slow_step_s(job))


def _slow_step_s(job: MasterState) -> float:
    """The `slow_step_s` of the slowest member."""
    heartbeats, members = job.observed.heartbeats, job.ledger.rounds.holders
    return max((heartbeats[worker].slow_step_s for worker in members if worker in heartbeats), default=0.0)


def _is_fleet_stable(job: MasterState) -> bool:
    """Whether all ps serve, so that no worker can be waiting for rows."""
    fleet = job.ledger.fleet
    return fleet.task is None and all(fleet.ps[ps].is_serving for ps in set(fleet.slot_owners))


def _reported_activity(job: MasterState, worker: WorkerId) -> ReportedActivity | None:
    heartbeat = job.observed.heartbeats.get(worker)
    if heartbeat is None or heartbeat.activity == pb.UNKNOWN:
        return None
    return ReportedActivity(
        heartbeat.activity,
        heartbeat.activity_s,
        heartbeat.blocked_s,
        bool(heartbeat.pause_reason),
        heartbeat.joined_round,
    )


def _check_worker(job: MasterState, worker: Worker, limits: StallLimits, now: float) -> Event | None:
    if not worker.reported_pid or worker.state in (WorkerState.LEAVING, WorkerState.FINISHED):
        return None
    if worker.hung_at and now - worker.hung_at >= limits.blocked_s:
        return WorkerStalled(worker.id, f"has taken no lease for {now - worker.hung_at:.0f} s since one expired")
    report = _reported_activity(job, worker.id)
    used, reason = (silent_s := now - last_heard_at(job, worker)) / limits.slow_s, ""
    if used >= NOTICE_FRACTION:
        reason = f"has sent no heartbeat for {silent_s:.0f} s; {limits.slow_s:.0f} s are allowed"
    elif report is None or not worker.is_connected:
        return None
    elif (used := used_fraction(report, limits)) >= NOTICE_FRACTION:
        reason = _describe_stall(report, limits, job)
    if worker.stall_reason and not reason:
        return StallEnded(worker.id)
    if worker.stall_reason:
        return WorkerStalled(worker.id, reason) if used >= 1.0 else None
    return StallNoticed(worker.id, reason) if reason else None


def _describe_stall(report: ReportedActivity, limits: StallLimits, job: MasterState) -> str:
    is_blocked = report.activity == pb.COMPUTING and report.blocked_s / limits.blocked_s >= NOTICE_FRACTION
    duration_s, allowed_s = (report.blocked_s, limits.blocked_s) if is_blocked else (report.activity_s, limits.slow_s)
    activity_text = "has been blocked" if is_blocked else _ACTIVITY_TEXT[pb.Activity.ValueType(report.activity)]
    step_text = f" in step {job.ledger.step}" if report.activity in (pb.COMPUTING, pb.READING) else ""
    if report.activity == pb.STARTING:
        blocked_text = (
            f" and has been blocked for {report.blocked_s:.0f} s" if report.blocked_s >= limits.blocked_s else ""
        )
        limit_text = f"; {allowed_s:.0f} s are allowed" if blocked_text else ""
        return f"{activity_text} for {duration_s:.0f} s{blocked_text}{limit_text}"
    return f"{activity_text} for {duration_s:.0f} s{step_text}; {allowed_s:.0f} s are allowed"


def _check_round(job: MasterState, limits: StallLimits, now: float) -> Event | None:
    rounds = job.ledger.rounds
    newest, timing = rounds.newest, job.spec.timing
    if newest is None or rounds.failed_at is not None or not _is_watched(job, limits):
        return None
    if rounds.stalls >= MAX_STALLED_ROUNDS:
        problem = f"{rounds.stalls} rounds in a row completed no step after step {job.ledger.step}"
        return JobEnded(
            Phase.FAILED, f"{problem}: {rounds.failure_reason}; the stacks are in the logs of the workers", True
        )
    present = [worker for worker in newest.workers if job.ledger.membership.is_present(worker)]
    reports = {worker: report for worker in present if (report := _reported_activity(job, worker)) is not None}
    have_all_reported = len(reports) == len(newest.workers)
    if have_all_reported and is_exchange_stalled(newest.id, list(reports.values()), limits):
        exchange_s = min(report.activity_s for report in reports.values())
        return RoundStalled(newest.id, (), f"all members have been in the exchange for {exchange_s:.0f} s")
    if newest.is_forced and not rounds.is_entered:
        enter_s = ENTRY_FACTOR * timing.round_timeout_s + timing.stall_steps * _slow_step_s(job)
        late = find_late_workers(newest, reports, now - newest.planned_at, enter_s, limits)
        if late is not None:
            waited_s = now - newest.planned_at
            problem = f"without {', '.join(late)}, not ready" if late else "not entered"
            return RoundStalled(newest.id, late, f"{problem} {waited_s:.0f} s after the round was planned")
    return None


# ---- events


def on_stall_noticed(job: MasterState, event: StallNoticed, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    worker.stall_reason = event.reason
    log_entry = job.add_log_entry(
        now,
        "worker-stalled",
        replica=worker.id,
        reason=f"{event.reason}; its stacks are in {job.log_location(worker.id)}",
    )
    actions: Actions = [
        log_entry,
        send_message(worker.id, dump_stacks=pb.DumpStacks(reason=f"{worker.id} {event.reason}")),
    ]
    if job.spec.cluster is None and now - last_heard_at(job, worker) >= job.spec.timing.heartbeat_timeout_s:
        actions.append(SignalReplica(worker.id, DUMP_SIGNAL))  # it reads no messages; faulthandler needs no interpreter
    return actions


def on_stall_ended(job: MasterState, event: StallEnded, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    worker.stall_reason = ""
    return [job.add_log_entry(now, "worker-recovered", replica=worker.id)]


def on_worker_stalled(job: MasterState, event: WorkerStalled, now: float) -> Actions:
    """Kill the worker and ignore its messages from now on. All workers that stall together count as one failure."""
    worker = job.ledger.membership.workers[event.worker]
    worker.is_killed, worker.stall_reason = True, ""
    job.ledger.stalls += 1
    reason = f"made no progress: {event.reason}; its stacks are in {job.log_location(worker.id)}"
    actions: Actions = [SignalReplica(worker.id, signal.SIGKILL)]
    if worker.is_external:
        actions.append(send_message(worker.id, release=pb.Release()))
    is_incident = job.ledger.loss_streak.add_loss(
        job.strategy.known_progress(job), worker.number, job.ledger.membership.next_number
    )
    actions += remove_worker(job, worker, WorkerState.LOST, reason, now)
    if not is_incident:
        return actions
    cause = ExitCause(reason, is_crash=True)
    return actions + charge_failure_budget(job, worker.id, cause, now, was_useful=True, plural="workers")


def log_expired_lease(job: MasterState, worker: WorkerId, reason: str, now: float) -> Actions:
    """Log that a lease was taken back because it made no progress; the strategy decides about its worker."""
    log_entry = job.add_log_entry(now, "lease-expired", replica=worker, reason=reason)
    return [log_entry, *job.strategy.on_lease_overdue(job, job.ledger.membership.workers[worker], reason, now)]


def replace_hung_worker(job: MasterState, worker: Worker, reason: str, now: float) -> Actions:
    """Replace a worker that only takes leases and makes no progress: it hangs."""
    return on_worker_stalled(job, WorkerStalled(worker.id, reason), now) if worker.is_present else []


def watch_hung_worker(worker: Worker, reason: str, now: float) -> Actions:
    """Watch a worker that also trains: its lease made no progress, but it may only be busy."""
    worker.hung_at = worker.hung_at or now
    return [send_message(worker.id, dump_stacks=pb.DumpStacks(reason=f"{worker.id}: {reason}"))]


def on_round_stalled(job: MasterState, event: RoundStalled, now: float) -> Actions:
    """Form the round again without the late workers, which drop their state and join again when they can."""
    rounds, workers = job.ledger.rounds, job.ledger.membership.workers
    if rounds.newest is None or rounds.newest.id != event.round:
        return []
    actions: Actions = [job.add_log_entry(now, "round-stalled", reason=event.reason)]
    for late in event.late:
        actions += reset_worker(job, workers[late], f"was not ready for round {event.round}", now)
        rounds.holders.remove(late)
    if not event.late:
        rounds.stalls += 1
        reason = f"round {event.round} makes no progress: {event.reason}"
        actions += [
            send_message(w, dump_stacks=pb.DumpStacks(reason=reason))
            for w in rounds.newest.workers
            if workers[w].is_present
        ]
    rounds.failed_at, rounds.failure_reason = now - 2 * job.spec.timing.regroup_s, event.reason
    return actions
