"""A ps's life, event by event: launched, serving, draining, gone. Pure."""

from __future__ import annotations

import signal

from elasticdl.master.actions import Action, LaunchPs, SignalPs
from elasticdl.master.ending import charge, end
from elasticdl.master.events import Exit, ReplicaExited, ReplicasListed, ReplicaStarted, ReplicaWaits, ScaleAsked
from elasticdl.master.fleet import GONE, Ps, PsState
from elasticdl.master.job import Job, send
from elasticdl.master.membership import Cause, WorkerState, cause_of
from elasticdl.master.memory import judged
from elasticdl.master.ps_events import (
    PsDrained,
    PsFailed,
    PsFellSilent,
    PsGreeted,
    PsLaunched,
    PsLeaving,
    PsSaidGoodbye,
    PsStalled,
    PsStallNoticed,
)
from elasticdl.master.tasks import announce, fleet_message, task_message
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import PsId

Actions = list[Action]


def launched(job: Job, event: PsLaunched, now: float) -> Actions:
    ps = job.ledger.fleet.add(event.ps, now)
    ps.raises = job.ledger.raises.get("ps", 0)
    return [LaunchPs(ps.id, ps.raises, job.suspects(now)), job.note(now, "ps-launched", worker=ps.id)]


def listed(job: Job, event: ReplicasListed, now: float) -> Actions:
    """A launcher reports, perhaps after the master was away: catch up with what was missed."""
    actions: Actions = []
    for exit_ in event.exited:
        actions += _exited(job, exit_, now)
    running, ended = dict(event.running), {exit_.replica for exit_ in event.exited}
    for ps in job.ledger.fleet.ps.values():
        if ps.id in running:
            ps.pid = running[ps.id]
        elif ps.exited or ps.id in ended:
            continue
        elif ps.state is PsState.LAUNCHING and not ps.pid:
            # The master died between its decision and the command.
            actions.append(LaunchPs(ps.id, ps.raises, job.suspects(now)))
        else:
            actions += _exited(job, Exit(ps.id, ps.pid, None, None), now)
    return actions


def started(job: Job, event: ReplicaStarted, now: float) -> Actions:
    if ps := job.ledger.fleet.ps.get(PsId(event.replica)):
        ps.pid = event.pid
    return []


def waits(job: Job, event: ReplicaWaits, now: float) -> Actions:
    """Said at once, in the cluster's own words; the pod stays asked for."""
    ps = job.ledger.fleet.ps.get(PsId(event.replica))
    if ps is None or ps.state is not PsState.LAUNCHING or ps.reason == event.why:
        return []
    ps.reason = event.why
    return [job.note(now, "ps-waits", worker=ps.id, reason=event.why)] if event.is_trouble else []


def exited(job: Job, event: ReplicaExited, now: float) -> Actions:
    return _exited(job, event.exit, now)


def _exited(job: Job, event: Exit, now: float) -> Actions:
    ps = job.ledger.fleet.ps.get(PsId(event.replica))
    if ps is None or ps.exited:
        return []
    ps.exited, ps.connected = True, False
    if ps.state in GONE:
        return []
    was_useful = ps.state is not PsState.LAUNCHING
    cause, notes = judged(job, "ps", ps.raises, event.cause, _cause(job, ps, event), now)
    actions = lose(job, ps, PsState(cause.state.value), cause.reason, now) + notes
    return actions + charge(job, ps.id, cause, now, was_useful=was_useful, kind="processes")


def _cause(job: Job, ps: Ps, event: Exit) -> Cause:
    holds = ps.id in job.ledger.fleet.owner
    if holds and ps.state is PsState.DRAINING and event.code == 0:
        reason = f"{ps.reason}; it ended before all its slots had moved"
        return Cause(WorkerState.LOST, reason, crashed=False)
    is_going = job.is_over or ps.released or (ps.state is PsState.DRAINING and not holds)
    log = job.log_of(ps.id)
    return cause_of(event, is_going=is_going, reason=ps.reason, failure=ps.failure, log=log)


def lose(job: Job, ps: Ps, state: PsState, reason: str, now: float) -> Actions:
    """It is gone: its slots are recovered by the next task, and nobody needs to wait for its answers."""
    fleet = job.ledger.fleet
    held = len(fleet.slots_of(ps.id))
    ps.become(state, now, reason)
    fleet.forget(ps.id)
    if state is PsState.LEFT:
        return announce(job)
    copies = fleet.replicas.get(ps.id)
    fate = (
        f"; {copies} has copies of its {held} slots"
        if copies
        else f"; its {held} slots are to be restored"
        if held
        else ""
    )
    return [job.note(now, "ps-lost", worker=ps.id, reason=reason + fate), *announce(job)]


def greeted(job: Job, event: PsGreeted, now: float) -> Actions:
    """A ps that nobody expects any more is sent away; all others hear all they must know."""
    fleet = job.ledger.fleet
    ps = fleet.ps.get(event.ps)
    if ps is None or ps.state in GONE or job.is_over:
        return [send(event.ps, release=pb.Release())]
    actions: Actions = [send(ps.id, welcome=pb.Welcome())]
    is_new = not ps.greeted_pid
    ps.greeted_pid, ps.pid = event.pid, ps.pid or event.pid
    ps.host, ps.address, ps.connected = event.host, event.address, True
    if ps.state is PsState.LAUNCHING:
        ps.become(PsState.SERVING, now)
        fleet.greeted_at = now
        actions.append(job.note(now, "ps-serving", worker=ps.id, reason=f"at {ps.address}"))
    if event.leaving and ps.state is PsState.SERVING:
        ps.become(PsState.DRAINING, now, "asked to leave")
    if is_new and fleet.version:
        actions += announce(job)
    elif fleet.version:
        actions.append(send(ps.id, fleet=fleet_message(job)))
    if fleet.task is not None and fleet.task.performer == ps.id:
        actions.append(send(ps.id, task=task_message(job, fleet.task)))
    if ps.released:
        actions.append(send(ps.id, release=pb.Release()))
    return actions


def leaving(job: Job, event: PsLeaving, now: float) -> Actions:
    ps = job.ledger.fleet.ps[event.ps]
    if ps.state in (PsState.LAUNCHING, PsState.SERVING):
        ps.become(PsState.DRAINING, now, event.reason)
    return []


def drained(job: Job, event: PsDrained, now: float) -> Actions:
    ps = job.ledger.fleet.ps[event.ps]
    ps.released = True
    job.ledger.fleet.forget(ps.id)
    note = job.note(now, "ps-drained", worker=ps.id, reason=ps.reason)
    return [note, *announce(job), send(ps.id, release=pb.Release())]


def goodbye(job: Job, event: PsSaidGoodbye, now: float) -> Actions:
    ps = job.ledger.fleet.ps[event.ps]
    ps.said_goodbye = True
    ps.reason = ps.reason or event.reason
    return []


def failed(job: Job, event: PsFailed, now: float) -> Actions:
    ps = job.ledger.fleet.ps[event.ps]
    ps.failure = event.message
    if not event.permanent or job.is_over:
        return []
    return end(job, "failed", f"{ps.id}: {event.message}", 2 if event.wrong_job else 1, now)


def fell_silent(job: Job, event: PsFellSilent, now: float) -> Actions:
    """Killed first: whoever is taken for lost must not answer anybody any more."""
    ps = job.ledger.fleet.ps[event.ps]
    job.seen.silent_at[ps.id] = now
    return [SignalPs(ps.id, signal.SIGKILL), *lose(job, ps, PsState.LOST, event.reason, now)]


def stall_noticed(job: Job, event: PsStallNoticed, now: float) -> Actions:
    ps = job.ledger.fleet.ps[event.ps]
    ps.stalled = event.reason
    reason = f"{event.reason}; its stacks are in {job.log_of(ps.id)}"
    return [
        job.note(now, "ps-stalled", worker=ps.id, reason=reason),
        send(ps.id, dump_stacks=pb.DumpStacks(reason=f"{ps.id} {event.reason}")),
    ]


def stalled(job: Job, event: PsStalled, now: float) -> Actions:
    """As one that fell silent, but it is a failure of its own."""
    ps = job.ledger.fleet.ps[event.ps]
    job.ledger.stalls += 1
    reason = f"answers no requests: {event.reason}; its stacks are in {job.log_of(ps.id)}"
    actions = [SignalPs(ps.id, signal.SIGKILL), *lose(job, ps, PsState.LOST, reason, now)]
    cause = Cause(WorkerState.LOST, reason, crashed=True)
    return actions + charge(job, ps.id, cause, now, was_useful=True, kind="processes")


def scale_asked(job: Job, event: ScaleAsked, now: float) -> Actions:
    """More are launched as time passes; of too many, the youngest give their slots away and leave."""
    fleet = job.ledger.fleet
    if not event.ps or not fleet.wish:
        return []
    before, fleet.wish = fleet.wish, event.ps
    for ps in fleet.active()[event.ps :]:
        ps.become(PsState.DRAINING, now, f"scaled to {event.ps} ps")
    return [job.note(now, "scaled", reason=f"from {before} to {event.ps} ps")]
