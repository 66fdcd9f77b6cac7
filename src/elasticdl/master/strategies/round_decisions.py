"""Decisions of all-reduce training: the next round, its donors, the last checkpoint and the end. Pure."""

from __future__ import annotations

from elasticdl.master.machine.ending import is_failing
from elasticdl.master.machine.events import Event, ExportRequested, JobEnded, RoundEntryObserved, RoundPlanned
from elasticdl.master.machine.membership import Worker, WorkerState
from elasticdl.master.machine.phase import RunningPhase, StoppingPhase
from elasticdl.master.machine.state import MasterState
from elasticdl.master.strategies import rounds
from elasticdl.spec import JobKind, Phase, WorkerId


def decide_round_entry(job: MasterState, now: float) -> Event | None:
    """A heartbeat shows that a planned round was entered: all members have voted for it and wait for each other in it.

    Without this, no worker would be considered to wait for a newcomer that froze while it entered.
    """
    round_state = job.ledger.rounds
    if round_state.newest is None or round_state.is_entered:
        return None
    for planned in [*round_state.superseded, round_state.newest]:
        for worker in planned.workers:
            heartbeat = job.observed.heartbeats.get(worker)
            # In a forced round only the first step proves it: after forming the group, members must agree on a state.
            if (
                heartbeat is not None
                and planned.id in (heartbeat.round, heartbeat.joined_round)
                and not planned.is_forced
            ):
                return RoundEntryObserved(planned.id)
    return None


def decide_end(job: MasterState, now: float) -> Event | None:
    phase, holders = job.ledger.phase, job.present_holders()
    if is_failing(job):
        return decide_final_checkpoint(job, now)
    finished = [worker for worker in holders if worker.state is WorkerState.FINISHED]
    if isinstance(phase, StoppingPhase):
        if not holders:
            return JobEnded(Phase.STOPPED, f"{phase.reason}; no worker was left to write a checkpoint", False)
        if now >= phase.deadline:
            grace_s = job.spec.timing.grace_period_s
            return JobEnded(Phase.STOPPED, f"{phase.reason}; workers did not end within {grace_s:g} s", True)
    # Workers that dropped the last step need not repeat it: those that finished hold its state.
    failed_on = job.ledger.rounds.failed_on
    running = [worker for worker in holders if worker.state is not WorkerState.FINISHED and worker.id not in failed_on]
    if not finished or running:
        return None
    is_cut_short = isinstance(phase, StoppingPhase) and not _is_complete(job)
    if not job.ledger.is_exported:
        is_requested = job.ledger.export is not None and any(worker.id == job.ledger.export[0] for worker in finished)
        # A stopped job writes a checkpoint but exports no model; a script saves its model itself.
        path = job.spec.output if job.spec.kind is JobKind.TRAINING and not is_cut_short else ""
        if path and job.ledger.evaluations.open and job.ledger.plan and job.ledger.plan.best_metric:
            return None  # the best model may not be evaluated yet
        return None if is_requested else ExportRequested(finished[0].id, path)
    if isinstance(phase, StoppingPhase) and is_cut_short:
        return JobEnded(Phase.STOPPED, phase.reason, False)
    if job.ledger.evaluations.open:
        return None
    return JobEnded(Phase.SUCCEEDED, job.ledger.finish_reason or "all steps are done", False)


def _is_complete(job: MasterState) -> bool:
    plan = job.ledger.plan
    return plan is not None and plan.total_steps > 0 and job.ledger.step >= plan.total_steps


def decide_final_checkpoint(job: MasterState, now: float) -> Event | None:
    """For a failed job: the next worker that must save its state, or the end of the job."""
    phase, ledger = job.ledger.phase, job.ledger
    assert isinstance(phase, StoppingPhase)
    if ledger.is_exported:
        return JobEnded(Phase.FAILED, phase.reason, False)
    if ledger.export is None and job.step <= (ledger.checkpoint[0] if ledger.checkpoint is not None else 0):
        return JobEnded(Phase.FAILED, phase.reason, False)  # decided here, since replay does not know the heartbeats
    if now >= phase.deadline:
        return JobEnded(Phase.FAILED, f"{phase.reason}; its state was not written in time", True)
    if ledger.export is not None and ledger.membership.is_present(ledger.export[0]):
        return None
    # A stalled worker would not react.
    candidates = [
        worker
        for worker in job.present_holders()
        if worker.id not in ledger.final_checkpoint_writers and not worker.stall_reason
    ]
    if not candidates:
        return JobEnded(Phase.FAILED, f"{phase.reason}; no worker was left to save its state", False)
    return ExportRequested(min(candidates, key=lambda worker: _writer_priority(job, worker)).id, "")


def _writer_priority(job: MasterState, worker: Worker) -> tuple[bool, int, int]:
    """Sorts healthy workers first, then those with the most steps."""
    heartbeat = job.observed.heartbeats.get(worker.id)
    return bool(worker.failure), -(heartbeat.step if heartbeat is not None else 0), worker.number


def decide_giving_up(job: MasterState, now: float) -> Event | None:
    """The job fails if too many rounds in a row failed for too long."""
    round_state = job.ledger.rounds
    if is_failing(job):
        return None
    if round_state.failed_in_a_row < rounds.MAX_FAILED_ROUNDS or now - round_state.failing_since < rounds.FAILING_FOR_S:
        return None
    reason = (
        f"{round_state.failed_in_a_row} rounds in a row failed before a step ended, although all their members seem "
        f"alive: {round_state.failure_reason}; see the logs of the workers"
    )
    return JobEnded(Phase.FAILED, reason, True)


def decide_round(job: MasterState, now: float) -> Event | None:
    ledger = job.ledger
    if ledger.rounds.newest is None and not ledger.fleet.is_ready:
        return None  # a job with ps begins once its fleet is ready
    if is_failing(job):
        return None  # the holders must keep their state unchanged
    workers = ledger.membership.workers
    if any(worker.state is WorkerState.FINISHED for worker in job.present_holders()):
        return None
    is_stopping = isinstance(ledger.phase, StoppingPhase)
    newcomers = [] if is_stopping else [worker.id for worker in ledger.membership.newcomers(ledger.rounds.holders)]
    failed_at = ledger.rounds.failed_at
    # A worker that reported a failure is about to end: do not wait for it, unless it alone holds the state.
    has_healthy = any(not holder.failure for holder in job.present_holders())
    situation = rounds.RoundSituation(
        newest=ledger.rounds.newest,
        is_entered=ledger.rounds.is_entered,
        holders=[
            rounds.StateHolder(
                holder,
                workers[holder].is_present and not (workers[holder].failure and has_healthy),
                workers[holder].state is WorkerState.LEAVING,
            )
            for holder in ledger.rounds.holders
        ],
        newcomers=newcomers,
        newcomers_waited_s=now - ledger.ready_at,
        expected=len(ledger.membership.active_workers()),
        # A stopping job only needs its last checkpoint, for which one worker is enough.
        min_workers=1 if is_stopping else job.spec.workers.min,
        max_workers=job.spec.workers.max,
        failed_for_s=None if failed_at is None else now - failed_at,
        regroup_s=job.spec.timing.regroup_s,
        start_timeout_s=job.spec.timing.start_timeout_s,
        delayed=[newcomer for newcomer in newcomers if workers[newcomer].join_after > now],
    )
    change = rounds.choose_round(situation)
    if change is None or (is_stopping and not change.is_forced):
        return _decide_rebalance(job, now)
    return _plan_round(job, change.workers, change.is_forced, change.reason)


def _plan_round(job: MasterState, workers: tuple[WorkerId, ...], is_forced: bool, reason: str) -> RoundPlanned:
    newest, holders = job.ledger.rounds.newest, job.ledger.rounds.holders
    counts = rounds.split_ranks(job.spec.plan.logical_ranks, _compute_times_s(job, workers))
    # In a forced round the members agree on the state among themselves, without donors.
    newcomers = [] if is_forced else [worker for worker in workers if worker not in holders]
    donors = job.ledger.rounds.donors.assign(newcomers, job.possible_donors(workers))
    assignments = rounds.assign_ranks(workers, counts, donors)
    return RoundPlanned(newest.id + 1 if newest else 1, assignments, is_forced, reason)


def _compute_times_s(job: MasterState, workers: tuple[WorkerId, ...]) -> list[float | None]:
    heartbeats = job.observed.heartbeats
    return [heartbeats[worker].compute_s or None if worker in heartbeats else None for worker in workers]


def _decide_rebalance(job: MasterState, now: float) -> Event | None:
    newest = job.ledger.rounds.newest
    is_quiet = job.ledger.rounds.is_entered and job.ledger.rounds.failed_at is None
    if newest is None or not is_quiet or not isinstance(job.ledger.phase, RunningPhase):
        job.observed.unbalanced_since = None
        return None
    counts = [member.logical_ranks for member in newest.members]
    if not rounds.is_unbalanced(counts, _compute_times_s(job, newest.workers)):
        job.observed.unbalanced_since = None
        return None
    if job.observed.unbalanced_since is None:
        job.observed.unbalanced_since = now
    is_sustained = now - job.observed.unbalanced_since >= rounds.UNBALANCED_FOR_S
    if not is_sustained or now - newest.planned_at < rounds.REBALANCE_INTERVAL_S:
        return None
    return _plan_round(job, newest.workers, False, "rebalanced: some workers are slower than others")
