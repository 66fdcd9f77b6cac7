"""Who has fallen silent. Pure.

A worker that sends no heartbeat may still be alive: a collective needs all its members, so as long as steps
end, nobody in the round is dead. Only both together, no heartbeat and no step, mean a loss; and only while others
wait for it.
"""

from __future__ import annotations

from elasticdl.master.machine.events import ReplicaFellSilent
from elasticdl.master.machine.membership import GONE_WORKER_STATES, Worker, WorkerState
from elasticdl.master.machine.state import MasterState

# Outside a round nobody waits for a worker, and it may be busy importing: it gets more time.
_OUTSIDE_FACTOR = 3.0


def find_silent_worker(job: MasterState, now: float) -> ReplicaFellSilent | None:
    """The first worker that is to be taken for lost."""
    holders = job.ledger.rounds.holders
    for worker in job.ledger.membership.workers.values():
        if worker.state in GONE_WORKER_STATES or worker.has_said_goodbye or not worker.reported_pid:
            continue
        in_round = worker.id in holders and worker.state is not WorkerState.FINISHED
        if reason := (_silence_in_round(job, worker, now) if in_round else _silence_outside_round(job, worker, now)):
            return ReplicaFellSilent(worker.id, reason)
    return None


def last_heard_at(job: MasterState, worker: Worker) -> float:
    """Since when it is silent."""
    # After a restart of the master its workers need a moment to find it again.
    return max(
        job.observed.heard_at.get(worker.id, 0.0), job.observed.watching_since + job.spec.timing.heartbeat_timeout_s
    )


def _silence_in_round(job: MasterState, worker: Worker, now: float) -> str:
    timing = job.spec.timing
    since = last_heard_at(job, worker)
    quiet_s = now - since
    if quiet_s < timing.heartbeat_timeout_s or not _is_awaited(job, worker, now):
        return ""
    # Steps that ended before it fell silent are told by the others up to a heartbeat and a step later.
    beat = job.observed.heartbeats.get(worker.id)
    echo_s = 2 * timing.heartbeat_interval_s + (beat.step_s if beat else 0.0)
    is_stale = job.observed.progressed_at <= since + echo_s
    is_long_ago = now - job.observed.progressed_at >= timing.heartbeat_timeout_s + echo_s
    return f"silent for {quiet_s:.2f} s while no step ended" if is_stale or is_long_ago else ""


def _is_awaited(job: MasterState, worker: Worker, now: float) -> bool:
    """Whether another holder of the state is there to go on without it.

    If nobody else was heard either, the machine slept or is overloaded, or this is the only worker: to give it up
    would lose the state, and nobody waits. That its process ended is told by the launcher.
    """
    heartbeat_timeout_s = job.spec.timing.heartbeat_timeout_s
    others = [holder for holder in job.present_holders() if holder.id != worker.id]
    for other in others:
        is_heard = now - last_heard_at(job, other) < heartbeat_timeout_s
        if is_heard and now - job.observed.heard_since.get(other.id, now) >= heartbeat_timeout_s:
            return True
    return not others and worker.is_external and not worker.is_connected


def _silence_outside_round(job: MasterState, worker: Worker, now: float) -> str:
    timing = job.spec.timing
    quiet_s = now - last_heard_at(job, worker)
    if worker.is_external and not worker.is_connected:
        return f"its connection broke {quiet_s:.2f} s ago" if quiet_s >= timing.heartbeat_timeout_s else ""
    if worker.is_connected and worker.state in (WorkerState.LAUNCHING, WorkerState.STARTING):
        # Imports and compilers may hold everything up for long; for how long the watchdog knows (stalls.py).
        return ""
    return f"silent for {quiet_s:.2f} s" if quiet_s >= _OUTSIDE_FACTOR * timing.heartbeat_timeout_s else ""
