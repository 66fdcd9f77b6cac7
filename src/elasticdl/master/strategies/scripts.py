"""Training by unmodified scripts (`--compat ddp`): every change ends all scripts and starts them again. Pure.

A script knows nothing about rounds, so it cannot continue in the next round as other all-reduce training does. A change
has two steps. `ScriptsHalted` tells all members to end their scripts; each reports Ready when its script has ended.
`RoundPlanned` then starts the scripts again, with the ranks and the rendezvous of the new round. No script starts
before all scripts of the round before have ended: they may still be writing the checkpoint that it resumes from.
"""

from __future__ import annotations

from elasticdl.master.machine import decisions, stalls
from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.ending import charge_failure_budget
from elasticdl.master.machine.events import JobEnded, RoundFailed, RoundPlanned, ScriptsHalted, WorkerFinished
from elasticdl.master.machine.membership import ExitCause, Worker, WorkerState
from elasticdl.master.machine.phase import StoppingPhase
from elasticdl.master.machine.silence import find_silent_worker
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.ps_fleet import fleet_decisions
from elasticdl.master.strategies import round_decisions, rounds, speeds
from elasticdl.master.strategies.allreduce import AllReduceTraining, log_round
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import Phase, WorkerId

Actions = list[Action]

# Ready workers wait this long for others that are starting, since each arrival restarts every script.
GATHER_NEWCOMERS_S = 3.0
_STAYING_STATES = frozenset({WorkerState.MEMBER, WorkerState.FINISHED})


def decide_end(job: MasterState, now: float) -> JobEnded | None:
    """The end of the job: all scripts of the round succeeded, or those of a stopping job have ended."""
    phase, round_state = job.ledger.phase, job.ledger.rounds
    if isinstance(phase, StoppingPhase):
        running = [worker for worker in job.present_holders() if worker.state is not WorkerState.FINISHED]
        if not running:
            return JobEnded(Phase.STOPPED, phase.reason, False)
        if now >= phase.deadline:
            grace_s = job.spec.timing.grace_period_s
            return JobEnded(Phase.STOPPED, f"{phase.reason}; scripts did not end within {grace_s:g} s", True)
        return None
    if (
        round_state.newest is not None
        and round_state.halted_at is None
        and set(round_state.newest.workers) <= set(round_state.finished_scripts)
    ):
        return JobEnded(Phase.SUCCEEDED, "all scripts ended with exit code 0", False)
    return None


def decide_round(job: MasterState, now: float) -> ScriptsHalted | RoundPlanned | None:
    """Whether all scripts must be ended, or can be started."""
    round_state, fleet = job.ledger.rounds, job.ledger.fleet
    if isinstance(job.ledger.phase, StoppingPhase) or (round_state.newest is None and not fleet.is_ready):
        return None
    if job.ledger.rounds.newest is None or job.ledger.rounds.halted_at is not None:
        return _decide_start(job, now)
    return _decide_halt(job, now)


def _decide_halt(job: MasterState, now: float) -> ScriptsHalted | None:
    ledger, timing = job.ledger, job.spec.timing
    round_state, workers = ledger.rounds, ledger.membership.workers
    assert round_state.newest is not None
    running = [workers[member] for member in round_state.newest.workers if member not in round_state.finished_scripts]
    gone = [worker for worker in running if worker.state not in _STAYING_STATES or worker.has_said_goodbye]
    if gone:
        return ScriptsHalted("; ".join(f"{worker.id} {_departure_text(worker)}" for worker in gone), "")
    # If a worker is lost, the scripts of the others fail, often before the loss is known. That is not their fault.
    failed_s = now - round_state.failed_at if round_state.failed_on and round_state.failed_at is not None else 0.0
    if round_state.failed_on and failed_s >= timing.regroup_s + timing.heartbeat_timeout_s:
        return ScriptsHalted(
            f"the script of {round_state.failed_on[0]} {round_state.failure_reason}", round_state.failed_on[0]
        )
    newcomers = ledger.membership.newcomers(list(round_state.newest.workers))
    vacancies = job.spec.workers.max - len(round_state.newest.workers)
    if (
        not round_state.failed_on
        and not round_state.finished_scripts
        and newcomers[:vacancies]
        and not _is_gathering(job, now)
    ):
        return ScriptsHalted(f"{', '.join(worker.id for worker in newcomers[:vacancies])} joins", "")
    return None


def _departure_text(worker: Worker) -> str:
    return "leaves" if worker.state in (WorkerState.LEAVING, WorkerState.LEFT) else "is lost"


def _decide_start(job: MasterState, now: float) -> RoundPlanned | None:
    ledger, spec = job.ledger, job.spec
    halted_at = ledger.rounds.halted_at
    ending = [worker for worker in ledger.membership.present_workers() if _is_ending(worker)]
    if halted_at is not None and ending and now - halted_at < spec.timing.grace_period_s:
        return None
    ready = [worker.id for worker in ledger.membership.newcomers([])][: spec.workers.max]
    if len(ready) < spec.workers.min or now < ledger.failure_budget.relaunch_at or _is_gathering(job, now):
        return None
    newest = ledger.rounds.newest
    counts = rounds.split_ranks(spec.plan.logical_ranks, [None] * len(ready))
    reason = "start of the job" if newest is None else _describe_change(newest.workers, ready)
    return RoundPlanned(newest.id + 1 if newest else 1, rounds.assign_ranks(ready, counts, {}), True, reason)


def _is_ending(worker: Worker) -> bool:
    """Whether the worker was told to end its script, which may still run."""
    return worker.must_reset or (worker.state is WorkerState.LEAVING and worker.is_connected)


def _is_gathering(job: MasterState, now: float) -> bool:
    """Whether to wait for workers that will soon be ready."""
    ledger = job.ledger
    starting = [
        worker
        for worker in ledger.membership.active_workers()
        if worker.state not in (*_STAYING_STATES, WorkerState.READY)
    ]
    missing = min(ledger.desired_workers, job.spec.workers.max) - len(ledger.membership.active_workers())
    since = max(ledger.ready_at, ledger.rounds.halted_at or 0.0)
    return (bool(starting) or missing > 0) and now - since < GATHER_NEWCOMERS_S


def _describe_change(before: tuple[WorkerId, ...], after: list[WorkerId]) -> str:
    joins = [worker for worker in after if worker not in before]
    gone = [worker for worker in before if worker not in after]
    parts = [f"with {', '.join(joins)}"] if joins else []
    parts += [f"without {', '.join(gone)}"] if gone else []
    return " and ".join(parts) or "the same workers again"


def on_scripts_halted(job: MasterState, event: ScriptsHalted, now: float) -> Actions:
    """Make every member end its script and report Ready; leaving workers end theirs anyway."""
    ledger = job.ledger
    round_state, workers = ledger.rounds, ledger.membership.workers
    actions = log_round(job, now)
    actions.append(job.add_log_entry(now, "scripts-ended", replica=event.failed_worker, reason=event.reason))
    for holder in round_state.holders:
        worker = workers[holder]
        if worker.is_present and worker.state in _STAYING_STATES:
            worker.set_state(WorkerState.STARTING, now, event.reason)
            worker.must_reset = True
            actions.append(send_message(worker.id, reset=pb.Reset(reason=event.reason)))
    # A late report about the round must not make it the current one again.
    round_state.current = round_state.newest
    round_state.holders, round_state.finished_scripts, round_state.halted_at = [], [], now
    failure_reason, round_state.failed_at, round_state.failed_on, round_state.failure_reason = (
        round_state.failure_reason,
        None,
        [],
        "",
    )
    if not event.failed_worker:
        return actions
    cause = ExitCause(f"{failure_reason}; its log is {job.log_location(WorkerId(event.failed_worker))}", is_crash=True)
    return actions + charge_failure_budget(job, event.failed_worker, cause, now, was_useful=True, plural="scripts")


def on_script_failed(job: MasterState, event: RoundFailed, now: float) -> Actions:
    """A script failed. Whether that counts as a failure is decided once it is known which workers are gone."""
    round_state = job.ledger.rounds
    if round_state.newest is None or event.round != round_state.newest.id or event.worker not in round_state.holders:
        return []
    if not round_state.failed_on:
        round_state.failed_at, round_state.failure_reason = now, event.reason
    round_state.failed_on.append(event.worker)
    return []


def on_script_ended(job: MasterState, event: WorkerFinished, now: float) -> Actions:
    """A script succeeded, or ended because the job stops."""
    round_state, worker = job.ledger.rounds, job.ledger.membership.workers[event.worker]
    if event.worker not in round_state.holders:
        return []  # it had been told to end before
    if event.worker not in round_state.finished_scripts:
        round_state.finished_scripts.append(event.worker)
    if worker.is_present and worker.state is WorkerState.MEMBER:
        worker.set_state(WorkerState.FINISHED, now, event.reason)
    return []


class ScriptTraining(AllReduceTraining):
    """All-reduce training by unmodified scripts: every round starts them again."""

    handlers = {**AllReduceTraining.handlers, ScriptsHalted: on_scripts_halted, RoundFailed: on_script_failed}
    decisions = (
        decisions.decide_worker_return,
        find_silent_worker,
        stalls.decide_script_stall,
        decisions.decide_lease_expiry,
        round_decisions.decide_round_entry,
        decide_end,
        round_decisions.decide_giving_up,
        fleet_decisions.next_decision,
        decide_round,
        decisions.decide_launch,
        decisions.decide_overdue_leave,
        decisions.decide_progress_record,
        speeds.next_measurement,
    )
    counts_repeated_losses = False  # failed scripts are counted once it is known which workers are gone

    def on_worker_finished(self, job: MasterState, event: WorkerFinished, now: float) -> Actions:
        return on_script_ended(job, event, now)

    def has_state_to_save(self, job: MasterState) -> bool:
        """A script saves its own state."""
        return False

    def expects_steps(self) -> bool:
        return False
