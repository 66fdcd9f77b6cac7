"""How a job ends: asked to stop, done, or failed. Pure."""

from __future__ import annotations

import signal

from elasticdl.master import progress
from elasticdl.master.actions import Action, SignalPs, SignalWorker
from elasticdl.master.events import Detached, ExportAsked, JobEnded, StopAsked
from elasticdl.master.job import Job, send
from elasticdl.master.membership import Cause, WorkerState
from elasticdl.master.phase import STOPPED_EXIT_CODE, Outcome, Over, Stopping
from elasticdl.rpc import elasticdl_pb2 as pb

Actions = list[Action]


def end(job: Job, phase: Outcome, reason: str, exit_code: int, now: float, *, kill: bool = False) -> Actions:
    """The job is over. Workers are released, or killed where nothing may be waited for."""
    job.ledger.phase = Over(phase, reason, exit_code, now)
    kind = {"succeeded": "finished", "stopped": "stopped", "failed": "failed"}[phase]
    actions: Actions = [job.note(now, kind, reason=reason)]
    for worker in list(job.ledger.membership.here()):
        if kill:
            actions.append(SignalWorker(worker.id, signal.SIGKILL))
        elif worker.state is WorkerState.LAUNCHING:
            worker.become(WorkerState.LEAVING, now, "the job is over")
            actions.append(SignalWorker(worker.id, signal.SIGTERM))  # it hears nothing yet, and has nothing to lose
        else:
            actions.append(send(worker.id, release=pb.Release()))
    for ps in job.ledger.fleet.here():
        actions.append(SignalPs(ps.id, signal.SIGKILL) if kill else send(ps.id, release=pb.Release()))
    return actions


def charge(job: Job, who: str, cause: Cause, now: float, *, was_useful: bool, kind: str) -> Actions:
    """What the end of a process costs the failure budget; the job ends where nothing is left of it."""
    budget, relaunch_s = job.ledger.budget, job.spec.timing.relaunch_s
    if job.is_over or cause.state is WorkerState.LEFT:
        return []
    if not cause.crashed:
        if not was_useful:
            budget.taken_away(now, relaunch_s)
        return []
    budget.crashed(now, relaunch_s)
    if not budget.is_exhausted:
        return []
    reason = f"{kind} failed {budget.spent} times, {budget.limit} are allowed; last {who} {cause.reason}"
    return end(job, "failed", reason, 1, now)


def stop_asked(job: Job, event: StopAsked, now: float) -> Actions:
    if job.is_over:
        return []
    if event.is_end and job.trains_by_leases:
        job.ledger.end_reason = job.ledger.end_reason or event.reason
        return []
    if event.at_once:
        return end(job, "stopped", event.reason, STOPPED_EXIT_CODE, now, kill=True)
    if isinstance(job.ledger.phase, Stopping):
        return []
    holders = job.state_holders()
    if not holders:
        return end(job, "stopped", event.reason, STOPPED_EXIT_CODE, now)
    job.ledger.phase = Stopping(event.reason, now + job.spec.timing.grace_s)
    actions: Actions = [job.note(now, "stopping", reason=event.reason)]
    staying = {worker.id for worker in holders}
    for worker in list(job.ledger.membership.here()):
        if worker.id in staying:
            actions.append(send(worker.id, stop=pb.StopTraining(reason=event.reason)))
        else:
            is_deaf = worker.state is WorkerState.LAUNCHING
            worker.become(WorkerState.LEAVING, now, "the job stops")
            actions.append(
                SignalWorker(worker.id, signal.SIGTERM) if is_deaf else send(worker.id, release=pb.Release())
            )
    return actions


def detached(job: Job, event: Detached, now: float) -> Actions:
    return stop_asked(job, StopAsked(False, "the terminal it was attached to is gone"), now)


def ended(job: Job, event: JobEnded, now: float) -> Actions:
    exit_code = {"succeeded": 0, "stopped": STOPPED_EXIT_CODE, "failed": 1}[event.phase]
    return end(job, event.phase, event.reason, exit_code, now, kill=event.kill)


def export_asked(job: Job, event: ExportAsked, now: float) -> Actions:
    job.ledger.export = (event.worker, event.path)
    return [send(event.worker, export=pb.Export(path=event.path, progress=progress.dump(job), step=job.ledger.step))]
