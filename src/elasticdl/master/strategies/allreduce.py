"""Handles the events of all-reduce training: rounds planned, entered, failed and stalled. Pure."""

from __future__ import annotations

from elasticdl.master.machine import decisions, messages, stalls
from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.ending import is_failing
from elasticdl.master.machine.events import (
    DataPlanReported,
    HeartbeatReceived,
    RoundEntered,
    RoundEntryObserved,
    RoundFailed,
    RoundPlanned,
    RoundStalled,
    SpeedMeasured,
    WorkerConnected,
    WorkerFinished,
)
from elasticdl.master.machine.membership import Worker, WorkerState
from elasticdl.master.machine.phase import PendingPhase, RunningPhase, StoppingPhase
from elasticdl.master.machine.silence import find_silent_worker
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.machine.training_reports import record_worker_finished
from elasticdl.master.machine.worker_life import reset_worker
from elasticdl.master.ps_fleet import fleet_decisions
from elasticdl.master.strategies import round_decisions, speeds
from elasticdl.master.strategies.base import JobStrategy
from elasticdl.master.strategies.rounds import FAILED_REASON, Round
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobKind, WorkerId

Actions = list[Action]


def on_round_planned(job: MasterState, event: RoundPlanned, now: float) -> Actions:
    rounds, workers = job.ledger.rounds, job.ledger.membership.workers
    actions = log_round(job, now)
    holders_before = list(rounds.holders)
    newest = Round(event.round, event.members, event.is_forced, event.reason, now)
    is_open = rounds.newest is not None and not rounds.is_entered and not rounds.newest.is_forced
    if event.is_forced:
        rounds.superseded = []
    elif rounds.newest is not None and is_open:
        rounds.superseded.append(rounds.newest)
    rounds.newest, rounds.finished_scripts, rounds.halted_at = newest, [], None
    rounds.donors.assigned |= {member.worker: WorkerId(member.donor) for member in newest.members if member.donor}
    for worker in job.ledger.membership.present_workers():
        if worker.state is WorkerState.JOINING and worker.id not in newest.workers:
            worker.set_state(WorkerState.READY, now)
    for member in newest.workers:
        if event.is_forced and workers[member].state is not WorkerState.LEAVING:
            workers[member].set_state(WorkerState.MEMBER, now)
        elif workers[member].state is WorkerState.READY:
            workers[member].set_state(WorkerState.JOINING, now)
    if event.is_forced:
        rounds.holders = list(newest.workers)
        if event.reason == FAILED_REASON:
            actions += _count_failed_round(job, now)
        rounds.failed_at, rounds.failed_on = None, []
        if isinstance(job.ledger.phase, PendingPhase):
            job.ledger.phase = RunningPhase()
    message = messages.round_message(job, newest)
    recipients = [
        *newest.workers,
        *(worker for worker in holders_before if worker not in newest.workers and workers[worker].is_present),
    ]
    actions += [send_message(worker, round=message) for worker in recipients]
    if isinstance(job.ledger.phase, StoppingPhase):
        stop = pb.StopTraining(reason=job.ledger.phase.reason)
        actions += [send_message(worker, stop=stop) for worker in newest.workers]
    return actions


def mark_entered(job: MasterState, now: float, round_id: int = 0) -> Actions:
    """This round (0: the newest) trains now. All members have voted for it, so the report of one is enough."""
    rounds, workers = job.ledger.rounds, job.ledger.membership.workers
    entered = rounds.find_pending(round_id or (rounds.newest.id if rounds.newest else 0))
    if entered is None:
        return []
    is_first = rounds.current is None
    members_before = rounds.current.workers if rounds.current is not None else ()
    newcomers = [worker for worker in entered.workers if worker not in members_before]
    rounds.current = entered
    rounds.superseded = [planned for planned in rounds.superseded if planned.id > entered.id]
    rounds.holders = list(entered.workers)
    rounds.failed_at, rounds.failed_on, rounds.entry_gaps_s = None, [], {}
    rounds.failed_in_a_row = rounds.stalls = 0
    rounds.donors.record_entered(entered.workers)
    actions: Actions = []
    for newcomer in newcomers:
        job.ledger.joined_count += 1
        reason = "from the start" if is_first else ""
        actions.append(job.add_log_entry(now, "worker-joined", replica=newcomer, reason=reason))
    for member in entered.workers:
        if workers[member].state in (WorkerState.READY, WorkerState.JOINING):
            workers[member].set_state(WorkerState.MEMBER, now)
    job.record_useful_work()
    return actions


def on_round_entry_observed(job: MasterState, event: RoundEntryObserved, now: float) -> Actions:
    return mark_entered(job, now, event.round)


def on_round_entered(job: MasterState, event: RoundEntered, now: float) -> Actions:
    rounds = job.ledger.rounds
    job.ledger.step = max(job.ledger.step, event.step)
    actions = mark_entered(job, now, event.round)
    current = rounds.current
    if current is None or event.round != current.id or event.worker not in current.workers:
        return actions
    rounds.entry_gaps_s[event.worker] = event.gap_s
    if set(rounds.entry_gaps_s) >= set(current.workers):
        actions += log_round(job, now)
    return actions


def log_round(job: MasterState, now: float) -> Actions:
    """Log the round that was entered, with its cost: the longest gap of any member."""
    rounds = job.ledger.rounds
    if rounds.current is None or not rounds.entry_gaps_s:
        return []
    cost_s = max(rounds.entry_gaps_s.values())
    rounds.entry_gaps_s = {}
    return [job.add_log_entry(now, "round-entered", reason=rounds.current.reason, cost_s=cost_s)]


def on_round_failed(job: MasterState, event: RoundFailed, now: float) -> Actions:
    rounds = job.ledger.rounds
    newest = rounds.newest
    worker = job.ledger.membership.workers[event.worker]
    if newest is None:
        return []
    if event.worker not in rounds.holders:
        # A newcomer whose state transfer failed, or whose round was replaced by a forced one without it. No worker
        # waits for it, so it begins again. If it had entered the round, the other members report that.
        if not worker.is_active:
            return []
        if event.donor:
            return _retry_state_transfer(job, worker, event, now)
        return reset_worker(job, worker, f"dropped round {event.round}: {event.reason}", now)
    if newest.is_forced and event.round != newest.id:
        return []  # a late report about the round before, to which this round is the answer
    if event.round == newest.id and not rounds.is_entered:
        # Perhaps it has just been entered: then its newcomers hold the state, too.
        rounds.holders += [worker for worker in newest.workers if worker not in rounds.holders]
    if rounds.failed_at is None:
        rounds.failed_at, rounds.failure_reason = now, event.reason
    if event.worker not in rounds.failed_on:
        rounds.failed_on.append(event.worker)
    return []


def _count_failed_round(job: MasterState, now: float) -> Actions:
    """Count a round that failed. Of several in a row, only the first is logged."""
    rounds = job.ledger.rounds
    rounds.failed_in_a_row += 1
    if rounds.failed_in_a_row > 1:
        return []
    rounds.failing_since = now
    return [
        job.add_log_entry(
            now, "round-failed", reason=f"{rounds.failure_reason}; all its members seem alive, so it is formed again"
        )
    ]


def _retry_state_transfer(job: MasterState, newcomer: Worker, event: RoundFailed, now: float) -> Actions:
    """Let the newcomer begin again, with another donor if there is one. No worker waits for it meanwhile."""
    rounds, donor = job.ledger.rounds, WorkerId(event.donor)
    reason = f"got no state from {donor}: {event.reason}"
    if rounds.donors.assigned.get(newcomer.id) != donor:
        return reset_worker(job, newcomer, reason, now)  # planned again meanwhile: the donor did not fail
    rounds.donors.record_failure(donor, newcomer.id)
    holders = job.possible_donors(
        [holder.id for holder in job.present_holders() if holder.state is not WorkerState.LEAVING]
    )
    delay_s = rounds.donors.retry_delay_s(newcomer.id, holders)
    newcomer.join_after = now + delay_s
    if delay_s:
        reason += (
            f"; {'no other worker has it' if len(holders) == 1 else 'nor from any other'}, tried again in {delay_s:g} s"
        )
    elif holders:
        reason += f"; {rounds.donors.assign([newcomer.id], holders)[newcomer.id]} is asked instead"
    return reset_worker(job, newcomer, reason, now, kind="state-transfer-failed")


class AllReduceTraining(JobStrategy):
    """Workers train in rounds: all members of a round hold the same state and all-reduce their gradients."""

    handlers = {
        RoundPlanned: on_round_planned,
        RoundEntryObserved: on_round_entry_observed,
        RoundEntered: on_round_entered,
        RoundFailed: on_round_failed,
        RoundStalled: stalls.on_round_stalled,
        SpeedMeasured: speeds.on_speed_measured,
    }
    decisions = (
        decisions.decide_worker_return,
        find_silent_worker,
        stalls.decide_round_stall,
        decisions.decide_lease_expiry,
        round_decisions.decide_round_entry,
        round_decisions.decide_end,
        round_decisions.decide_giving_up,
        fleet_decisions.next_decision,
        round_decisions.decide_round,
        decisions.decide_launch,
        decisions.decide_overdue_leave,
        decisions.decide_progress_record,
        speeds.next_measurement,
    )

    # ---- handle

    def on_plan_reported(self, job: MasterState, event: DataPlanReported, now: float) -> Actions:
        return []

    def on_worker_finished(self, job: MasterState, event: WorkerFinished, now: float) -> Actions:
        return record_worker_finished(job, event, now)

    def on_worker_ready(self, job: MasterState, worker: Worker, now: float) -> None:
        worker.set_state(WorkerState.READY, now)

    def on_worker_connected(self, job: MasterState, event: WorkerConnected, now: float) -> Actions:
        return mark_entered(job, now, event.round) if event.round else []

    def on_worker_replaced(self, job: MasterState, worker: Worker, now: float) -> Actions:
        rounds = job.ledger.rounds
        if worker.id in rounds.holders:
            rounds.holders.remove(worker.id)
            rounds.failed_at = now - 2 * job.spec.timing.regroup_s
        return []

    def on_goodbye(self, job: MasterState, worker: Worker, now: float) -> Actions:
        """A worker leaves once all others have entered the round without it, which they report a step later."""
        is_leaving = worker.state is WorkerState.LEAVING and worker.id in job.ledger.rounds.holders
        return mark_entered(job, now) if is_leaving and _may_have_been_entered(job, worker) else []

    def on_heartbeat(self, job: MasterState, event: HeartbeatReceived, now: float) -> None:
        is_newer = event.step > job.observed.step
        super().on_heartbeat(job, event, now)
        if is_newer:
            speeds.update_speed(job)

    def is_drained(self, job: MasterState) -> bool:
        return True

    def can_take_leases(self, worker: Worker) -> bool:
        return super().can_take_leases(worker) or worker.is_active

    # ---- lost

    def on_worker_lost(self, job: MasterState, worker: Worker, now: float) -> Actions:
        job.ledger.rounds.donors.remove_worker(worker.id)
        return super().on_worker_lost(job, worker, now)

    def keeps_its_state(self, job: MasterState, worker: Worker) -> bool:
        """Only a worker that had finished all steps keeps its state: an export may keep its process busy for long.

        Otherwise the round went on without it, and its state is outdated.
        """
        return worker.state_before_loss is WorkerState.FINISHED and worker.id in job.ledger.rounds.holders

    def on_lease_overdue(self, job: MasterState, worker: Worker, reason: str, now: float) -> Actions:
        return stalls.watch_hung_worker(worker, reason, now)

    def state_holders(self, job: MasterState) -> list[Worker]:
        return job.present_holders()

    def has_state_to_save(self, job: MasterState) -> bool:
        return True

    def on_final_save_requested(self, worker: WorkerId) -> Actions:
        return [send_message(worker, save_state=pb.SaveState())]

    # ---- status

    def pending_messages(self, job: MasterState, worker: Worker, entered: int) -> Actions:
        ledger, actions = job.ledger, list[Action]()
        newest, phase = ledger.rounds.newest, ledger.phase
        is_holder = worker.id in ledger.rounds.holders
        is_concerned = newest is not None and (worker.id in newest.workers or is_holder)
        if newest is not None and is_concerned and entered != newest.id and worker.state is not WorkerState.FINISHED:
            actions.append(send_message(worker.id, round=messages.round_message(job, newest)))
        if isinstance(phase, StoppingPhase) and not is_holder:
            actions.append(send_message(worker.id, release=pb.Release()))
        elif isinstance(phase, StoppingPhase) and not is_failing(job):
            actions.append(send_message(worker.id, stop=pb.StopTraining(reason=phase.reason)))
        elif is_failing(job) and messages.is_export_pending(job, worker.id):
            actions.append(send_message(worker.id, save_state=pb.SaveState()))
        return actions + messages.pending_export(job, worker.id)

    def known_progress(self, job: MasterState) -> int:
        return job.ledger.step

    def describe_progress(self, job: MasterState) -> str:
        return f"step {self.known_progress(job)}"

    def done_records(self, job: MasterState) -> int:
        return max(job.ledger.records, job.observed.records)

    def epochs(self, job: MasterState) -> int:
        """The number of epochs; that of a script is known once it has joined."""
        is_known = job.records_per_epoch or job.spec.kind is not JobKind.SCRIPT
        return super().epochs(job) if is_known else 0

    def newest_loss(self, job: MasterState) -> tuple[int, float]:
        observed = job.observed
        if observed.step > job.ledger.loss_curve.step:
            return observed.step, observed.loss  # from a heartbeat
        return super().newest_loss(job)

    def complete_status(self, job: MasterState, status: pb.JobStatus) -> None:
        status.max_batch_scale = job.max_batch_scale


def _may_have_been_entered(job: MasterState, leaver: Worker) -> bool:
    """Whether the newest round, which the leaver waits for, may have been entered.

    The leaver also ends when its grace period is over. A newcomer that got no state from it has then dropped the round.
    """
    newest, workers = job.ledger.rounds.newest, job.ledger.membership.workers
    if newest is None or newest.is_forced or leaver.id in newest.workers:
        return False
    return not any(workers[member].state in (WorkerState.STARTING, WorkerState.READY) for member in newest.workers)
