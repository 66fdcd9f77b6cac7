"""Events that only workers have: connected, ready, leaving, failed, considered lost and returned. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from elasticdl.master.machine import messages, out_of_memory
from elasticdl.master.machine.actions import Action, SignalReplica
from elasticdl.master.machine.ending import fail_job, is_failing, on_final_checkpoint_failed
from elasticdl.master.machine.events import (
    LeaveOverdue,
    ReplicaExit,
    ScaleRequested,
    WorkerConnected,
    WorkerFailed,
    WorkerLeaving,
    WorkerReady,
    WorkerReturned,
    WorkerSaidGoodbye,
)
from elasticdl.master.machine.membership import (
    GONE_WORKER_STATES,
    OUT_OF_MEMORY,
    PREEMPTION_CAUSES,
    ExitCause,
    Worker,
    WorkerState,
    classify_worker_exit,
)
from elasticdl.master.machine.replica_life import ReplicaRole
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import WorkerId
from elasticdl.spec.ids import ReplicaId

Actions = list[Action]


def remove_worker(job: MasterState, worker: Worker, state: WorkerState, reason: str, now: float) -> Actions:
    """Remove a worker that is gone; others take over its leases and evaluations."""
    worker.state_before_loss = worker.state
    worker.set_state(state, now, reason)
    kind = "worker-left" if state is WorkerState.LEFT else "worker-lost"
    actions: Actions = [job.add_log_entry(now, kind, replica=worker.id, reason=reason)]
    return actions + job.strategy.on_worker_lost(job, worker, now)


def on_worker_connected(job: MasterState, event: WorkerConnected, now: float) -> Actions:
    membership = job.ledger.membership
    worker = membership.workers.get(event.worker)
    actions: Actions = []
    is_gone = worker is not None and (worker.has_exited or worker.is_killed)
    if worker is not None and is_gone and worker.reported_pid in (0, event.pid):
        return [send_message(worker.id, release=pb.Release())]  # a late message of a process that is gone
    if worker is not None and worker.reported_pid not in (0, event.pid):
        # Another process with the same name: an external worker that was restarted.
        if worker.state not in GONE_WORKER_STATES:
            actions += remove_worker(job, worker, WorkerState.LOST, f"replaced by process {event.pid}", now)
        actions += job.strategy.on_worker_replaced(job, worker, now)
        worker = None
    if worker is None:
        worker = membership.add(event.worker, WorkerState.LAUNCHING, now, external=True)
        actions.append(job.add_log_entry(now, "worker-launched", replica=worker.id, reason="started by hand"))
    worker.reported_pid = event.pid
    worker.pid = worker.pid or event.pid
    worker.host, worker.is_connected = event.host, True
    worker.store_address, worker.peer_address = event.store_address, event.peer_address
    actions += _check_cpu_capability(job, event, now)
    if worker.state is WorkerState.LOST and not job.is_over:
        actions += on_worker_returned(job, WorkerReturned(worker.id), now)
    if worker.state is WorkerState.LAUNCHING:
        worker.set_state(WorkerState.STARTING, now)
    if event.ready and worker.state is WorkerState.STARTING and not worker.must_reset:
        _mark_ready(job, worker, now)
    if event.leaving and worker.is_active:
        worker.set_state(WorkerState.LEAVING, now, "asked to leave")
    if not worker.must_reset:
        actions += job.strategy.on_worker_connected(job, event, now)
    actions.append(send_message(worker.id, welcome=pb.Welcome()))
    return actions + messages.pending_messages(job, worker, event.round)


def _check_cpu_capability(job: MasterState, event: WorkerConnected, now: float) -> Actions:
    """Log a worker with another instruction set. It sums in another order, so results depend on who computes what."""
    expected, reported = job.ledger.cpu_capability, event.cpu_capability
    job.ledger.cpu_capability = expected or reported
    if not expected or not reported or expected == reported or not job.spec.plan.reproducible:
        return []
    reason = (
        f"computes with {reported}, the others with {expected}: the bits will differ; choose one with --cpu_capability"
    )
    return [job.add_log_entry(now, "cpu-differs", replica=event.worker, reason=reason)]


def on_worker_ready(job: MasterState, event: WorkerReady, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    worker.must_reset = False
    worker.store_address = event.store_address or worker.store_address
    if worker.state in (WorkerState.LAUNCHING, WorkerState.STARTING):
        _mark_ready(job, worker, now)
    return job.strategy.on_worker_joined(job, worker, now)


def _mark_ready(job: MasterState, worker: Worker, now: float) -> None:
    job.ledger.ready_at = now
    job.strategy.on_worker_ready(job, worker, now)


def on_worker_leaving(job: MasterState, event: WorkerLeaving, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    if worker.is_active:
        worker.set_state(WorkerState.LEAVING, now, event.reason)
    return []


def on_worker_said_goodbye(job: MasterState, event: WorkerSaidGoodbye, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    actions = job.strategy.on_goodbye(job, worker, now)
    worker.has_said_goodbye = True
    # The reason why it was asked to leave is better than its own.
    worker.reason = worker.reason or event.reason
    if worker.is_external:
        actions += remove_worker(job, worker, WorkerState.LEFT, worker.reason, now)
    return actions


def on_worker_failed(job: MasterState, event: WorkerFailed, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    worker.failure = event.message
    if is_failing(job):
        return on_final_checkpoint_failed(job, worker)
    if not event.permanent or job.is_over:
        return []
    reason = f"{worker.id}: {event.message}"
    return fail_job(job, event.message if event.wrong_job else reason, 2 if event.wrong_job else 1, now)


def on_worker_returned(job: MasterState, event: WorkerReturned, now: float) -> Actions:
    """A worker that was considered lost is alive: it continues, or drops its state if that is outdated."""
    worker = job.ledger.membership.workers[event.worker]
    job.observed.silent_at.pop(worker.id, None)
    reason = f"was considered lost ({worker.reason}) and was heard again"
    if worker.state_before_loss is not None and job.strategy.keeps_its_state(job, worker):
        worker.set_state(worker.state_before_loss, now, reason)
        return [job.add_log_entry(now, "worker-returned", replica=worker.id, reason=reason)]
    return reset_worker(job, worker, reason, now)


def reset_worker(job: MasterState, worker: Worker, reason: str, now: float, kind: str = "worker-returned") -> Actions:
    """Make a worker drop its state, which is outdated, and report Ready again."""
    worker.must_reset, worker.has_said_goodbye = True, False
    worker.set_state(WorkerState.STARTING, now, reason)
    return [
        send_message(worker.id, reset=pb.Reset(reason=reason)),
        job.add_log_entry(now, kind, replica=worker.id, reason=reason),
    ]


def on_leave_overdue(job: MasterState, event: LeaveOverdue, now: float) -> Actions:
    worker = job.ledger.membership.workers[event.worker]
    worker.since = now
    return [SignalReplica(worker.id, signal.SIGKILL)]


def on_scale_requested(job: MasterState, event: ScaleRequested, now: float) -> Actions:
    """Set the desired number of workers. If there are too many, the youngest leave; missing ones are launched later."""
    ledger = job.ledger
    if not event.workers:
        return []
    before, ledger.desired_workers = ledger.desired_workers, event.workers
    actions: Actions = [job.add_log_entry(now, "scaled", reason=f"from {before} to {event.workers} workers")]
    for worker in ledger.membership.active_workers()[event.workers :]:
        actions += request_leave(worker, f"scaled to {event.workers} workers", now)
    return actions


def request_leave(worker: Worker, reason: str, now: float) -> Actions:
    is_launching = worker.state is WorkerState.LAUNCHING
    worker.set_state(WorkerState.LEAVING, now, reason)
    worker.is_leave_requested = True
    if is_launching:
        return [SignalReplica(worker.id, signal.SIGTERM)]
    return [send_message(worker.id, leave=pb.Leave(reason=reason))]


def _count_loss(job: MasterState, worker: Worker, exit_: ReplicaExit, cause: ExitCause) -> tuple[ExitCause, bool]:
    """The cause, a crash if workers are lost again and again without progress; and whether this is a new incident."""
    has_known_cause = exit_.cause in PREEMPTION_CAUSES or cause.is_expected
    # A crash always counts; a pod that is restarted with more memory never does.
    is_decided = cause.is_crash != (exit_.cause == OUT_OF_MEMORY)
    if has_known_cause or is_decided or not job.strategy.counts_repeated_losses or job.is_over:
        return cause, True
    loss_streak = job.ledger.loss_streak
    is_incident = loss_streak.add_loss(
        job.strategy.known_progress(job), worker.number, job.ledger.membership.next_number
    )
    if cause.is_crash:
        return cause, is_incident
    if not loss_streak.is_failure:
        return cause, True
    progress = job.strategy.describe_progress(job)
    progress_text = f"no progress since {progress}" if job.strategy.known_progress(job) else "no progress"
    reason = (
        f"{cause.reason}; loss {loss_streak.incidents} in a row with {progress_text}, so it counts as a failure; "
        f"if the kernel kills workers because they run out of memory, {out_of_memory.memory_advice(job)}"
    )
    return ExitCause(reason, is_crash=True), is_incident


class WorkerRole(ReplicaRole[Worker]):
    """Workers. Their losses without progress in between become failures."""

    name = "worker"
    plural = "workers"

    def replicas(self, job: MasterState) -> Mapping[Any, Worker]:
        return job.ledger.membership.workers

    def add(self, job: MasterState, replica: ReplicaId, now: float) -> Worker:
        return job.ledger.membership.add(WorkerId(replica), WorkerState.LAUNCHING, now)

    def is_launching(self, replica: Worker) -> bool:
        return replica.state is WorkerState.LAUNCHING

    def is_gone(self, replica: Worker) -> bool:
        return replica.state in GONE_WORKER_STATES

    def was_useful(self, replica: Worker) -> bool:
        return replica.state in (WorkerState.MEMBER, WorkerState.FINISHED)

    def is_watched(self, replica: Worker) -> bool:
        return not replica.is_external

    def desired_workers(self, job: MasterState) -> int:
        return job.ledger.desired_workers

    def classify_exit(self, job: MasterState, replica: Worker, exit_: ReplicaExit) -> ExitCause:
        return classify_worker_exit(replica, exit_, job.log_location(replica.id))

    def count_loss(
        self, job: MasterState, replica: Worker, exit_: ReplicaExit, cause: ExitCause
    ) -> tuple[ExitCause, bool]:
        return _count_loss(job, replica, exit_, cause)

    def remove(self, job: MasterState, replica: Worker, cause: ExitCause, now: float) -> Actions:
        state = WorkerState.LEFT if cause.is_expected else WorkerState.LOST
        return remove_worker(job, replica, state, cause.reason, now)

    def on_silent(self, job: MasterState, replica: Worker, cause: ExitCause, now: float) -> Actions:
        return self.remove(job, replica, cause, now)
