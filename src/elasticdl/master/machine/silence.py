"""Detects workers that have fallen silent. Pure.

A worker that sends no heartbeat may still be alive. A collective needs all its members, so as long as steps end, no
member of the round is dead. A worker is considered lost only if it sends no heartbeat, no step ends, and another worker
waits for it.
"""

from __future__ import annotations

from elasticdl.master.machine.events import ReplicaFellSilent
from elasticdl.master.machine.membership import GONE_WORKER_STATES, Worker, WorkerState
from elasticdl.master.machine.state import MasterState

# Outside a round no worker waits for another, and a worker may be busy importing: it gets more time.
_OUTSIDE_FACTOR = 3.0


def find_silent_worker(job: MasterState, now: float) -> ReplicaFellSilent | None:
    """The first worker that must be considered lost, or None."""
    holders = job.ledger.rounds.holders
    for worker in job.ledger.membership.workers.values():
        if worker.state in GONE_WORKER_STATES or worker.has_said_goodbye or not worker.reported_pid:
            continue
        in_round = worker.id in holders and worker.state is not WorkerState.FINISHED
        if reason := (_silence_in_round(job, worker, now) if in_round else _silence_outside_round(job, worker, now)):
            return ReplicaFellSilent(worker.id, reason)
    return None


def last_heard_at(job: MasterState, worker: Worker) -> float:
    """When a worker was heard last."""
    # After a restart of the master, its workers need a moment to reconnect.
    return max(
        job.observed.heard_at.get(worker.id, 0.0), job.observed.watching_since + job.spec.timing.heartbeat_timeout_s
    )


def _silence_in_round(job: MasterState, worker: Worker, now: float) -> str:
    timing = job.spec.timing
    heard_at = last_heard_at(job, worker)
    silent_s = now - heard_at
    if silent_s < timing.heartbeat_timeout_s or not _is_awaited(job, worker, now):
        return ""
    # The others report steps that ended before it fell silent up to a heartbeat and a step later.
    heartbeat = job.observed.heartbeats.get(worker.id)
    report_delay_s = 2 * timing.heartbeat_interval_s + (heartbeat.step_s if heartbeat else 0.0)
    has_no_step_since = job.observed.progressed_at <= heard_at + report_delay_s
    is_last_step_old = now - job.observed.progressed_at >= timing.heartbeat_timeout_s + report_delay_s
    return f"silent for {silent_s:.2f} s while no step ended" if has_no_step_since or is_last_step_old else ""


def _is_awaited(job: MasterState, worker: Worker, now: float) -> bool:
    """Whether another holder of the state can go on without this worker.

    If no other worker was heard either, the machine slept or is overloaded, or this is the only worker. Giving it up
    would then lose the state, and no worker waits for it. The launcher reports if its process ended.
    """
    heartbeat_timeout_s = job.spec.timing.heartbeat_timeout_s
    others = [holder for holder in job.present_holders() if holder.id != worker.id]
    for other_replica in others:
        is_heard = now - last_heard_at(job, other_replica) < heartbeat_timeout_s
        if is_heard and now - job.observed.heard_since.get(other_replica.id, now) >= heartbeat_timeout_s:
            return True
    return not others and worker.is_external and not worker.is_connected


def _silence_outside_round(job: MasterState, worker: Worker, now: float) -> str:
    timing = job.spec.timing
    silent_s = now - last_heard_at(job, worker)
    if worker.is_external and not worker.is_connected:
        return f"its connection broke {silent_s:.2f} s ago" if silent_s >= timing.heartbeat_timeout_s else ""
    if worker.is_connected and worker.state in (WorkerState.LAUNCHING, WorkerState.STARTING):
        # Imports and compilers may block the process for long; the watchdog limits that (stalls.py).
        return ""
    return f"silent for {silent_s:.2f} s" if silent_s >= _OUTSIDE_FACTOR * timing.heartbeat_timeout_s else ""
