"""Decisions of all-reduce training: the next round, who transfers the state, the last checkpoint and the end. Pure."""

from __future__ import annotations

from elasticdl.master.machine.ending import is_failing
from elasticdl.master.machine.events import Event, ExportRequested, JobEnded, RoundEntryObserved, RoundPlanned
from elasticdl.master.machine.membership import Worker, WorkerState
from elasticdl.master.machine.phase import RunningPhase, StoppingPhase
from elasticdl.master.machine.state import MasterState
from elasticdl.master.strategies import rounds
from elasticdl.spec import JobKind, Phase, WorkerId


def decide_round_entry(job: MasterState, now: float) -> Event | None:
    """A member that has taken its seat in a planned round: all have voted for it, and wait for each other there.

    Without this a newcomer that froze as it entered would be missed by nobody: it held no state before.
    """
    rounds_ = job.ledger.rounds
    if rounds_.newest is None or rounds_.is_entered:
        return None
    for known in [*rounds_.superseded, rounds_.newest]:
        for worker in known.workers:
            beat = job.observed.heartbeats.get(worker)
            # In a forced round only the first step counts: its group may stand, and the members not agree yet.
            if beat is not None and known.id in (beat.round, beat.joined_round) and not known.is_forced:
                return RoundEntryObserved(known.id)
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
    # Whoever dropped the last step needs not do it again: those that finished hold its state.
    waiting = [w for w in holders if w.state is not WorkerState.FINISHED and w.id not in job.ledger.rounds.failed_on]
    if not finished or waiting:
        return None
    is_cut_short = isinstance(phase, StoppingPhase) and not _is_complete(job)
    if not job.ledger.is_exported:
        is_asked = job.ledger.export is not None and any(worker.id == job.ledger.export[0] for worker in finished)
        # A job that was stopped keeps its state, but has no model to give; nor has a script, it saves its own.
        path = job.spec.output if job.spec.kind is JobKind.TRAINING and not is_cut_short else ""
        if path and job.ledger.evaluations.open and job.ledger.plan and job.ledger.plan.best_metric:
            return None  # the best model may be one that is not evaluated yet
        return None if is_asked else ExportRequested(finished[0].id, path)
    if isinstance(phase, StoppingPhase) and is_cut_short:
        return JobEnded(Phase.STOPPED, phase.reason, False)
    if job.ledger.evaluations.open:
        return None
    return JobEnded(Phase.SUCCEEDED, job.ledger.finish_reason or "all steps are done", False)


def _is_complete(job: MasterState) -> bool:
    plan = job.ledger.plan
    return plan is not None and plan.total_steps > 0 and job.ledger.step >= plan.total_steps


def decide_final_checkpoint(job: MasterState, now: float) -> Event | None:
    """Of a job that trains in rounds and has failed: whom to ask next, or its end."""
    phase, ledger = job.ledger.phase, job.ledger
    assert isinstance(phase, StoppingPhase)
    if ledger.is_exported:
        return JobEnded(Phase.FAILED, phase.reason, False)
    if ledger.export is None and job.step <= (ledger.checkpoint[0] if ledger.checkpoint is not None else 0):
        return JobEnded(Phase.FAILED, phase.reason, False)  # decided here: what heartbeats said is not replayed
    if now >= phase.deadline:
        return JobEnded(Phase.FAILED, f"{phase.reason}; its state was not written in time", True)
    if ledger.export is not None and ledger.membership.is_present(ledger.export[0]):
        return None
    # One that stands still would not hear of it.
    able = [
        worker
        for worker in job.present_holders()
        if worker.id not in ledger.final_checkpoint_writers and not worker.stall_reason
    ]
    if not able:
        return JobEnded(Phase.FAILED, f"{phase.reason}; nobody was left to keep its state", False)
    return ExportRequested(min(able, key=lambda worker: _writer_priority(job, worker)).id, "")


def _writer_priority(job: MasterState, worker: Worker) -> tuple[bool, int, int]:
    """Healthy ones first, then those that are ahead."""
    beat = job.observed.heartbeats.get(worker.id)
    return bool(worker.failure), -(beat.step if beat is not None else 0), worker.number


def decide_giving_up(job: MasterState, now: float) -> Event | None:
    rounds_ = job.ledger.rounds
    if is_failing(job):
        return None
    if rounds_.failed_in_a_row < rounds.MAX_FAILED_ROUNDS or now - rounds_.failing_since < rounds.FAILING_FOR_S:
        return None
    said = f"{rounds_.failed_in_a_row} rounds in a row broke before a step ended, though all their members seem alive"
    return JobEnded(Phase.FAILED, f"{said}: {rounds_.failure_reason}; the logs of the workers say more", True)


def decide_round(job: MasterState, now: float) -> Event | None:
    ledger = job.ledger
    if ledger.rounds.newest is None and not ledger.fleet.is_ready:
        return None  # a job with ps begins when its fleet serves
    if is_failing(job):
        return None  # whoever holds the state keeps it as it is
    workers = ledger.membership.workers
    if any(w.state is WorkerState.FINISHED for w in job.present_holders()):
        return None
    is_stopping = isinstance(ledger.phase, StoppingPhase)
    newcomers = [] if is_stopping else [worker.id for worker in ledger.membership.newcomers(ledger.rounds.holders)]
    broken_at = ledger.rounds.failed_at
    # One that said why it fails is about to end: nobody waits for it, unless nobody else holds the state.
    has_healthy = any(not holder.failure for holder in job.present_holders())
    outlook = rounds.RoundSituation(
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
        # A job that stops only wants its checkpoint, however few are left to write it.
        min_workers=1 if is_stopping else job.spec.workers.min,
        max_workers=job.spec.workers.max,
        failed_for_s=None if broken_at is None else now - broken_at,
        regroup_s=job.spec.timing.regroup_s,
        start_timeout_s=job.spec.timing.start_timeout_s,
        pausing=[newcomer for newcomer in newcomers if workers[newcomer].join_after > now],
    )
    change = rounds.choose_round(outlook)
    if change is None or (is_stopping and not change.is_forced):
        return _decide_rebalance(job, now)
    return _plan_round(job, change.workers, change.is_forced, change.reason)


def _plan_round(job: MasterState, workers: tuple[WorkerId, ...], forced: bool, reason: str) -> RoundPlanned:
    newest, holders = job.ledger.rounds.newest, job.ledger.rounds.holders
    counts = rounds.split_ranks(job.spec.plan.logical_ranks, _compute_times_s(job, workers))
    # Survivors settle among themselves: nobody has a donor in a forced round.
    newcomers = [] if forced else [worker for worker in workers if worker not in holders]
    donors = job.ledger.rounds.donors.assign(newcomers, job.possible_donors(workers))
    seats = rounds.assign_ranks(workers, counts, donors)
    return RoundPlanned(newest.id + 1 if newest else 1, seats, forced, reason)


def _compute_times_s(job: MasterState, workers: tuple[WorkerId, ...]) -> list[float | None]:
    beats = job.observed.heartbeats
    return [beats[worker].compute_s or None if worker in beats else None for worker in workers]


def _decide_rebalance(job: MasterState, now: float) -> Event | None:
    newest = job.ledger.rounds.newest
    is_quiet = job.ledger.rounds.is_entered and job.ledger.rounds.failed_at is None
    if newest is None or not is_quiet or not isinstance(job.ledger.phase, RunningPhase):
        job.observed.unbalanced_since = None
        return None
    counts = [seat.logical_ranks for seat in newest.members]
    if not rounds.is_unbalanced(counts, _compute_times_s(job, newest.workers)):
        job.observed.unbalanced_since = None
        return None
    if job.observed.unbalanced_since is None:
        job.observed.unbalanced_since = now
    is_sustained = now - job.observed.unbalanced_since >= rounds.UNBALANCED_FOR_S
    if not is_sustained or now - newest.planned_at < rounds.REBALANCE_INTERVAL_S:
        return None
    return _plan_round(job, newest.workers, False, "rebalanced: some workers are slower than others")
