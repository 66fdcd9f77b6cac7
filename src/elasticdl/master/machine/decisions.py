"""Decisions that every strategy has: what time, heartbeats or the sum of past events call for. Pure.

Each decision is an event of its own, journaled like any other, so that replay need not know the heartbeats or the time
that led to it. A strategy lists its decisions in the order in which they are asked, until none has anything to say.
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
# A replacement waits so long at most for the others to recover: its start-up would take the processors from them.
MAX_LAUNCH_WAIT_S = 1.0


def decide_worker_return(job: MasterState, now: float) -> Event | None:
    for worker in job.ledger.membership.workers.values():
        is_heard = job.observed.heard_at.get(worker.id, 0.0) > worker.since
        may_return = worker.state is WorkerState.LOST and not worker.has_exited and not worker.is_killed
        if may_return and worker.is_connected and is_heard:
            return WorkerReturned(worker.id)
    return None


def decide_lease_expiry(job: MasterState, now: float) -> Event | None:
    # A master that was away has heard of no progress: that is not the workers' fault.
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
        w.state is WorkerState.FINISHED for w in ledger.membership.present_workers()
    ):
        return None
    # A worker that said why it fails has not ended yet: its exit is counted, and the pause begins there.
    if any(
        w.failure and w.has_said_goodbye and not (w.has_exited or w.is_external)
        for w in ledger.membership.workers.values()
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
    """A worker takes leases from now on: where there are no rounds, that is how it joins."""
    if worker.state is not WorkerState.MEMBER:
        return []
    job.ledger.joined_count += 1
    return [job.add_log_entry(now, "worker-joined", replica=worker.id)]
