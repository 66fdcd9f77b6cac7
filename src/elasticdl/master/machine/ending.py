"""The end of a job: stopped, succeeded or failed. Pure.

A job that has failed saves its state before it ends: a worker that holds the state writes a checkpoint. Each holder is
asked once, healthy ones first. In all-reduce training the others may be blocked in a step that never ends, so the asked
worker leaves its round and writes the state after the last update. In lease training all workers stop, as at any other
end, and one of them writes what is on the ps.
"""

from __future__ import annotations

import signal

from elasticdl.master.machine.actions import Action, SignalReplica
from elasticdl.master.machine.events import ExportRequested, JobEnded, StopRequested, TerminalDetached
from elasticdl.master.machine.membership import ExitCause, Worker, WorkerState
from elasticdl.master.machine.phase import STOPPED_EXIT_CODE, FinalPhase, Outcome, StoppingPhase
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.strategies import training_progress
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import Phase

Actions = list[Action]


def end_job(
    job: MasterState, phase: Outcome, reason: str, exit_code: int, now: float, *, kill: bool = False
) -> Actions:
    """End the job. Its replicas are released, or killed with `kill`."""
    if phase is Phase.FAILED:
        reason += _checkpoint_hint(job)
    job.ledger.phase = FinalPhase(phase, reason, exit_code, now)
    kind = "finished" if phase is Phase.SUCCEEDED else phase.value
    actions: Actions = [job.add_log_entry(now, kind, reason=reason)]
    for worker in list(job.ledger.membership.present_workers()):
        if kill:
            actions.append(SignalReplica(worker.id, signal.SIGKILL))
        elif worker.state is WorkerState.LAUNCHING:
            worker.set_state(WorkerState.LEAVING, now, "the job is over")
            actions.append(SignalReplica(worker.id, signal.SIGTERM))  # it has no session yet, and nothing to save
        else:
            actions.append(send_message(worker.id, release=pb.Release()))
    for ps in job.ledger.fleet.present_ps():
        actions.append(SignalReplica(ps.id, signal.SIGKILL) if kill else send_message(ps.id, release=pb.Release()))
    return actions


def fail_job(job: MasterState, reason: str, exit_code: int, now: float, *, kill: bool = False) -> Actions:
    """The job has failed: save its state if there is any, then end it.

    `kill`: kill the workers if there is no state to save, because they do not react to messages.
    """
    if job.is_over or is_failing(job):
        return []
    if not job.spec.has_durable_checkpoints or not job.state_holders() or not job.strategy.has_state_to_save(job):
        return end_job(job, Phase.FAILED, reason, exit_code, now, kill=kill)
    deadline = now + job.spec.timing.grace_period_s + job.spec.checkpoint.retry_s
    job.ledger.phase = StoppingPhase(reason, deadline, failure_exit_code=exit_code)
    actions: Actions = [job.add_log_entry(now, "failing", reason=f"{reason}; its state is saved before it ends")]
    staying = {worker.id for worker in job.state_holders()}
    for worker in list(job.ledger.membership.present_workers()):
        if worker.id not in staying:
            actions.append(_dismiss_worker(worker, "the job fails", now))
        else:
            actions += job.strategy.on_failing(worker.id, reason)
    return actions


def is_failing(job: MasterState) -> bool:
    """Whether the job has failed and only saves its state before it ends."""
    return isinstance(job.ledger.phase, StoppingPhase) and job.ledger.phase.failure_exit_code > 0


def on_final_checkpoint_failed(job: MasterState, worker: Worker) -> Actions:
    """A worker could not save the state: let another holder be asked."""
    if job.ledger.export is not None and job.ledger.export[0] == worker.id:
        job.ledger.export = None
    return []


def _checkpoint_hint(job: MasterState) -> str:
    """Tells the user where the newest checkpoint is and how to resume from it."""
    if job.ledger.checkpoint is None:
        return ""
    step, path = job.ledger.checkpoint
    return f"; the state of step {step} is in {path}: resume from it with --resume"


def _dismiss_worker(worker: Worker, reason: str, now: float) -> Action:
    """Make a worker that holds no state leave."""
    is_launching = worker.state is WorkerState.LAUNCHING
    worker.set_state(WorkerState.LEAVING, now, reason)
    return SignalReplica(worker.id, signal.SIGTERM) if is_launching else send_message(worker.id, release=pb.Release())


def charge_failure_budget(
    job: MasterState, replica: str, cause: ExitCause, now: float, *, was_useful: bool, plural: str
) -> Actions:
    """Charge the end of a process to the failure budget. The job fails if the budget is exhausted.

    `plural`: the word for such processes in the message.
    """
    budget, relaunch_backoff_s = job.ledger.failure_budget, job.spec.timing.relaunch_backoff_s
    if job.is_over or cause.is_expected:
        return []
    in_a_row = max(0, job.ledger.loss_streak.incidents - 1)
    if not cause.is_crash:
        if in_a_row or not was_useful:
            budget.count_preemption(now, relaunch_backoff_s, in_a_row)
        return []
    budget.count_crash(now, relaunch_backoff_s, in_a_row)
    if not budget.is_exhausted:
        return []
    reason = f"{plural} failed {budget.spent} times, {budget.limit} are allowed; last {replica} {cause.reason}"
    return fail_job(job, reason, 1, now)


def on_stop_requested(job: MasterState, event: StopRequested, now: float) -> Actions:
    if job.is_over:
        return []
    if event.is_training_done and job.strategy.end_training(job, event.reason):
        return []
    if event.at_once:
        return end_job(job, Phase.STOPPED, event.reason, STOPPED_EXIT_CODE, now, kill=True)
    if isinstance(job.ledger.phase, StoppingPhase):
        return []
    holders = job.state_holders()
    if not holders:
        return end_job(job, Phase.STOPPED, event.reason, STOPPED_EXIT_CODE, now)
    job.ledger.phase = StoppingPhase(event.reason, now + job.spec.timing.grace_period_s)
    actions: Actions = [job.add_log_entry(now, "stopping", reason=event.reason)]
    staying = {worker.id for worker in holders}
    for worker in list(job.ledger.membership.present_workers()):
        if worker.id in staying:
            actions.append(send_message(worker.id, stop=pb.StopTraining(reason=event.reason)))
        else:
            actions.append(_dismiss_worker(worker, "the job stops", now))
    return actions


def on_terminal_detached(job: MasterState, event: TerminalDetached, now: float) -> Actions:
    return on_stop_requested(job, StopRequested(False, "the terminal it was attached to was closed"), now)


def on_job_ended(job: MasterState, event: JobEnded, now: float) -> Actions:
    phase = job.ledger.phase
    if event.phase is Phase.FAILED and not (isinstance(phase, StoppingPhase) and phase.failure_exit_code):
        return fail_job(job, event.reason, 1, now, kill=event.kill)
    exit_code = {Phase.SUCCEEDED: 0, Phase.STOPPED: STOPPED_EXIT_CODE, Phase.FAILED: 1}[event.phase]
    if event.phase is Phase.FAILED and isinstance(phase, StoppingPhase):
        exit_code = phase.failure_exit_code
    return end_job(job, event.phase, event.reason, exit_code, now, kill=event.kill)


def on_export_requested(job: MasterState, event: ExportRequested, now: float) -> Actions:
    job.ledger.export = (event.worker, event.path)
    actions: Actions = []
    if is_failing(job):
        job.ledger.final_checkpoint_writers.append(event.worker)
        actions += job.strategy.on_final_save_requested(event.worker)
    return [*actions, send_message(event.worker, export=training_progress.export_message(job, event.path))]
