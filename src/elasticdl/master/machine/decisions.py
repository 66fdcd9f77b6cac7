"""Decisions common to all strategies, which depend on the time, heartbeats and past events. Pure.

Each decision returns an event, which is journaled like any other, so that replay does not need the heartbeats or the
time that led to it. A strategy lists its decisions in order; the first one that returns an event wins.
"""

from __future__ import annotations

from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.events import (
    Event,
    LeaseExpired,
    LeaveOverdue,
    ProgressRecorded,
    ReplicaLaunched,
    WorkerReturned,
)
from elasticdl.master.machine.membership import Worker, WorkerState
from elasticdl.master.machine.phase import PendingPhase, RunningPhase
from elasticdl.master.machine.state import MasterState

PROGRESS_INTERVAL_S = 1.0
# A replacement is launched at most this much later, while others recover: its start would take processors from them.
MAX_LAUNCH_WAIT_S = 1.0


def decide_worker_return(job: MasterState, now: float) -> Event | None:
    """A worker that was considered lost has sent a message again."""
    for worker in job.ledger.membership.workers.values():
        is_heard = job.observed.heard_at.get(worker.id, 0.0) > worker.since
        may_return = worker.state is WorkerState.LOST and not worker.has_exited and not worker.is_killed
        if may_return and worker.is_connected and is_heard:
            return WorkerReturned(worker.id)
    return None


def decide_lease_expiry(job: MasterState, now: float) -> Event | None:
    # While no master was running, workers could not report progress.
    if now - job.observed.watching_since < job.spec.timing.lease_s:
        return None
    for queue in job.strategy.open_queues(job):
        for lease in queue.overdue_leases(now, job.spec.timing.lease_s):
            return LeaseExpired(lease.id)
    return None


def decide_launch(job: MasterState, now: float) -> Event | None:
    ledger = job.ledger
    if not job.observed.has_launcher or not isinstance(ledger.phase, PendingPhase | RunningPhase):
        return None
    if now < ledger.failure_budget.relaunch_at or any(
        worker.state is WorkerState.FINISHED for worker in ledger.membership.present_workers()
    ):
        return None
    # A worker that reported a failure has not exited yet: its exit is counted, and the delay begins then.
    if any(
        worker.failure and worker.has_said_goodbye and not (worker.has_exited or worker.is_external)
        for worker in ledger.membership.workers.values()
    ):
        return None
    newest = ledger.rounds.newest
    is_recovering = newest is not None and newest.is_forced and not ledger.rounds.is_entered
    if newest is not None and is_recovering and now - newest.planned_at < MAX_LAUNCH_WAIT_S:
        return None
    return (
        ReplicaLaunched("worker", ledger.membership.next_id())
        if len(ledger.membership.active_workers()) < ledger.desired_workers
        else None
    )


def decide_overdue_leave(job: MasterState, now: float) -> Event | None:
    for worker in job.ledger.membership.workers.values():
        is_late = worker.state is WorkerState.LEAVING and now - worker.since >= job.spec.timing.grace_period_s
        if is_late and not worker.is_external and not worker.has_exited:
            return LeaveOverdue(worker.id)
    return None


def decide_progress_record(job: MasterState, now: float) -> Event | None:
    if job.observed.step > job.ledger.step and now - job.observed.progress_journaled_at >= PROGRESS_INTERVAL_S:
        job.observed.progress_journaled_at = now
        return ProgressRecorded(job.observed.step, job.observed.records)
    return None


def log_lease_taker(job: MasterState, worker: Worker, now: float) -> list[Action]:
    """Log that a worker takes leases from now on. In a job without rounds, that is how a worker joins."""
    if worker.state is not WorkerState.MEMBER:
        return []
    job.ledger.joined_count += 1
    return [job.add_log_entry(now, "worker-joined", replica=worker.id)]
