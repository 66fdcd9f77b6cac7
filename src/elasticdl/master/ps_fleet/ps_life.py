"""Events that only ps have: connected, draining, failed, stalled, gone. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from elasticdl.master.machine.actions import Action, SignalReplica
from elasticdl.master.machine.ending import charge_failure_budget, end_job
from elasticdl.master.machine.events import ReplicaExit, ScaleRequested
from elasticdl.master.machine.membership import ExitCause, classify_exit
from elasticdl.master.machine.replica_life import ReplicaRole
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.ps_fleet.fleet import GONE_PS_STATES, PsReplica, PsReplicaState
from elasticdl.master.ps_fleet.ps_events import (
    PsConnected,
    PsDrained,
    PsFailed,
    PsLeaving,
    PsSaidGoodbye,
    PsStalled,
    PsStallNoticed,
)
from elasticdl.master.ps_fleet.tasks import announce_fleet, fleet_message, task_message
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import Phase, PsId
from elasticdl.spec.ids import ReplicaId

Actions = list[Action]


def remove_ps(job: MasterState, ps: PsReplica, state: PsReplicaState, reason: str, now: float) -> Actions:
    """Remove a ps that is gone. The next task recovers its slots, and no replica waits for its answers."""
    fleet = job.ledger.fleet
    slot_count = len(fleet.slots_of(ps.id))
    ps.set_state(state, now, reason)
    fleet.remove_holder(ps.id)
    if state is PsReplicaState.LEFT:
        return announce_fleet(job)
    if backup := fleet.backups.get(ps.id):
        reason += f"; {backup} has a backup of its {slot_count} slots"
    elif slot_count:
        reason += f"; its {slot_count} slots will be restored"
    return [job.add_log_entry(now, "ps-lost", replica=ps.id, reason=reason), *announce_fleet(job)]


def on_ps_connected(job: MasterState, event: PsConnected, now: float) -> Actions:
    """Release a ps that is not expected any more; send every other one all messages that it needs."""
    fleet = job.ledger.fleet
    ps = fleet.ps.get(event.ps)
    if ps is None or ps.state in GONE_PS_STATES or job.is_over:
        return [send_message(event.ps, release=pb.Release())]
    actions: Actions = [send_message(ps.id, welcome=pb.Welcome())]
    is_new = not ps.reported_pid
    ps.reported_pid, ps.pid = event.pid, ps.pid or event.pid
    ps.host, ps.address, ps.is_connected = event.host, event.address, True
    if ps.state is PsReplicaState.LAUNCHING:
        ps.set_state(PsReplicaState.SERVING, now)
        fleet.last_joined_at = now
        actions.append(job.add_log_entry(now, "ps-serving", replica=ps.id, reason=f"at {ps.address}"))
    if event.leaving and ps.state is PsReplicaState.SERVING:
        ps.set_state(PsReplicaState.DRAINING, now, "asked to leave")
    if is_new and fleet.version:
        actions += announce_fleet(job)
    elif fleet.version:
        actions.append(send_message(ps.id, fleet=fleet_message(job)))
    if fleet.task is not None and fleet.task.performer == ps.id:
        actions.append(send_message(ps.id, task=task_message(job, fleet.task)))
    if ps.is_released:
        actions.append(send_message(ps.id, release=pb.Release()))
    return actions


def on_ps_leaving(job: MasterState, event: PsLeaving, now: float) -> Actions:
    ps = job.ledger.fleet.ps[event.ps]
    if ps.state in (PsReplicaState.LAUNCHING, PsReplicaState.SERVING):
        ps.set_state(PsReplicaState.DRAINING, now, event.reason)
    return []


def on_ps_drained(job: MasterState, event: PsDrained, now: float) -> Actions:
    ps = job.ledger.fleet.ps[event.ps]
    ps.is_released = True
    job.ledger.fleet.remove_holder(ps.id)
    log_entry = job.add_log_entry(now, "ps-drained", replica=ps.id, reason=ps.reason)
    return [log_entry, *announce_fleet(job), send_message(ps.id, release=pb.Release())]


def on_ps_said_goodbye(job: MasterState, event: PsSaidGoodbye, now: float) -> Actions:
    ps = job.ledger.fleet.ps[event.ps]
    ps.has_said_goodbye = True
    ps.reason = ps.reason or event.reason
    return []


def on_ps_failed(job: MasterState, event: PsFailed, now: float) -> Actions:
    ps = job.ledger.fleet.ps[event.ps]
    ps.failure = event.message
    if not event.permanent or job.is_over:
        return []
    return end_job(job, Phase.FAILED, f"{ps.id}: {event.message}", 2 if event.wrong_job else 1, now)


def on_ps_stall_noticed(job: MasterState, event: PsStallNoticed, now: float) -> Actions:
    ps = job.ledger.fleet.ps[event.ps]
    ps.stall_reason = event.reason
    reason = f"{event.reason}; its stacks are in {job.log_location(ps.id)}"
    return [
        job.add_log_entry(now, "ps-stalled", replica=ps.id, reason=reason),
        send_message(ps.id, dump_stacks=pb.DumpStacks(reason=f"{ps.id} {event.reason}")),
    ]


def on_ps_stalled(job: MasterState, event: PsStalled, now: float) -> Actions:
    """Kill and remove the ps as if it were silent, but count that as a failure."""
    ps = job.ledger.fleet.ps[event.ps]
    job.ledger.stalls += 1
    reason = f"answers no requests: {event.reason}; its stacks are in {job.log_location(ps.id)}"
    actions = [SignalReplica(ps.id, signal.SIGKILL), *remove_ps(job, ps, PsReplicaState.LOST, reason, now)]
    cause = ExitCause(reason, is_crash=True)
    return actions + charge_failure_budget(job, ps.id, cause, now, was_useful=True, plural="processes")


def on_scale_requested(job: MasterState, event: ScaleRequested, now: float) -> Actions:
    """Set the desired number of ps. If there are too many, the youngest drain; missing ones are launched later."""
    fleet = job.ledger.fleet
    if not event.ps or not fleet.desired:
        return []
    desired_before, fleet.desired = fleet.desired, event.ps
    for ps in fleet.active_ps()[event.ps :]:
        ps.set_state(PsReplicaState.DRAINING, now, f"scaled to {event.ps} ps")
    return [job.add_log_entry(now, "scaled", reason=f"from {desired_before} to {event.ps} ps")]


def _classify_ps_exit(job: MasterState, ps: PsReplica, exit_: ReplicaExit) -> ExitCause:
    has_slots = ps.id in job.ledger.fleet.slot_owners
    if has_slots and ps.state is PsReplicaState.DRAINING and exit_.code == 0:
        reason = f"{ps.reason}; it ended before all its slots had moved"
        return ExitCause(reason, is_crash=False)
    is_leaving = job.is_over or ps.is_released or (ps.state is PsReplicaState.DRAINING and not has_slots)
    log = job.log_location(ps.id)
    return classify_exit(exit_, is_leaving=is_leaving, reason=ps.reason, failure=ps.failure, log=log)


class PsRole(ReplicaRole[PsReplica]):
    """Parameter servers. Others recover the slots of a lost one."""

    name = "ps"
    plural = "processes"

    def replicas(self, job: MasterState) -> Mapping[Any, PsReplica]:
        return job.ledger.fleet.ps

    def add(self, job: MasterState, replica: ReplicaId, now: float) -> PsReplica:
        return job.ledger.fleet.add(PsId(replica), now)

    def is_launching(self, replica: PsReplica) -> bool:
        return replica.state is PsReplicaState.LAUNCHING

    def is_gone(self, replica: PsReplica) -> bool:
        return replica.state in GONE_PS_STATES

    def was_useful(self, replica: PsReplica) -> bool:
        return replica.state is not PsReplicaState.LAUNCHING

    def classify_exit(self, job: MasterState, replica: PsReplica, exit_: ReplicaExit) -> ExitCause:
        return _classify_ps_exit(job, replica, exit_)

    def remove(self, job: MasterState, replica: PsReplica, cause: ExitCause, now: float) -> Actions:
        state = PsReplicaState.LEFT if cause.is_expected else PsReplicaState.LOST
        return remove_ps(job, replica, state, cause.reason, now)

    def on_silent(self, job: MasterState, replica: PsReplica, cause: ExitCause, now: float) -> Actions:
        """Kill the ps first: one that is considered lost must not answer requests any more."""
        return [SignalReplica(replica.id, signal.SIGKILL), *self.remove(job, replica, cause, now)]
