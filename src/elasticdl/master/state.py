"""The master's state machine: events in, actions out. No socket, clock, thread or log in here.

    state.handle(event, now) -> actions       what happened
    state.due(now) -> event | None            what has to happen now; journaled and handled like any other

Replaying the journaled events gives the same state to the bit (`dump`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter

from elasticdl.master import deciding, ending, lease_training, leasing, lifecycle, training
from elasticdl.master import events as ev
from elasticdl.master.actions import Action, Send
from elasticdl.master.job import Job, Ledger, Observations, new_ledger, send
from elasticdl.master.membership import GONE
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobSpec

_SEQUENCED = frozenset(ev.Sequenced.__args__)
_LEDGER: TypeAdapter[Ledger] = TypeAdapter(Ledger)

Handler = Callable[[Job, Any, float], list[Action]]


class JobState:
    """One job, from its first event to its last."""

    def __init__(self, spec: JobSpec, logs: str = "logs") -> None:
        self.job = Job(spec, logs, new_ledger(spec))

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        """Take note of `event` and say what to do about it."""
        kind = type(event)
        if kind in _SEQUENCED:
            return self._once(event, now)
        return _HANDLERS[kind](self.job, event, now)

    def _once(self, event: Any, now: float) -> list[Action]:
        worker = self.job.ledger.membership.workers.get(event.worker)
        if worker is None:
            return []  # nobody by this name has greeted: nothing to acknowledge, it will say so again
        actions: list[Action] = []
        if event.sequence > worker.sequence:
            worker.sequence = event.sequence
            actions = _HANDLERS[type(event)](self.job, event, now)
        return [*actions, acknowledge(event.worker, worker.sequence)]

    def due(self, now: float) -> ev.Event | None:
        """The next thing to decide at `now`; handle it, then ask again."""
        return deciding.due(self.job, now)

    def dump(self) -> bytes:
        """All that the journal restores, as canonical JSON."""
        return _LEDGER.dump_json(self.job.ledger)

    def load(self, dumped: bytes) -> None:
        self.job.ledger = _LEDGER.validate_json(dumped)

    def validate(self) -> None:
        """Assert the invariants of the whole state."""
        ledger = self.job.ledger
        rounds, workers = ledger.rounds, ledger.membership.workers
        for evaluation in ledger.evaluations.open.values():
            evaluation.queue.validate()
            for lease in evaluation.queue.leases.values():
                assert workers[lease.worker].state not in GONE, f"{lease.worker} is gone but holds a lease"
        if ledger.training is not None:
            ledger.training.validate()
            for lease in ledger.training.shards.leases.values():
                assert workers[lease.worker].state not in GONE, f"{lease.worker} is gone but holds a lease"
        assert set(rounds.holders) <= set(workers), "a holder nobody knows"
        assert len(set(rounds.holders)) == len(rounds.holders), "a holder twice"
        for planned in (rounds.newest, rounds.current):
            if planned is None:
                continue
            assert set(planned.workers) <= set(workers), "a member nobody knows"
            assert sum(seat.ranks for seat in planned.seats) == self.job.spec.plan.logical_ranks
            assert all(seat.ranks >= 1 for seat in planned.seats)
            starts = [seat.first for seat in planned.seats]
            assert starts == [sum(seat.ranks for seat in planned.seats[:i]) for i in range(len(starts))]
        if rounds.newest is not None and rounds.current is not None:
            assert rounds.current.id <= rounds.newest.id, "a round was entered that was never planned"


def acknowledge(worker: Any, sequence: int) -> Send:
    return send(worker, acknowledged=pb.Acknowledged(sequence=sequence))


def _master_started(job: Job, event: ev.MasterStarted, now: float) -> list[Action]:
    ledger = job.ledger
    ledger.incarnations += 1
    job.seen = Observations(since=now)
    if ledger.incarnations == 1:
        ledger.started_at = now
        return [job.note(now, "started")]
    for worker in ledger.membership.workers.values():
        worker.connected = False
    return [job.note(now, "master-restarted", reason=f"process {event.pid}")]


def _listed(job: Job, event: ev.ReplicasListed, now: float) -> list[Action]:
    job.seen.has_launcher = True
    return lifecycle.listed(job, event, now)


def _greeted(job: Job, event: ev.WorkerGreeted, now: float) -> list[Action]:
    job.seen.hear(event.worker, now, job.spec.timing.silence_s)
    return lifecycle.greeted(job, event, now)


def _heartbeat(job: Job, event: ev.HeartbeatReceived, now: float) -> list[Action]:
    seen = job.seen
    seen.hear(event.worker, now, job.spec.timing.silence_s)
    seen.beats[event.worker] = event
    if job.trains_by_leases:  # what is trained is known from the leases
        seen.loss, seen.learning_rate = event.loss or seen.loss, event.learning_rate or seen.learning_rate
    elif event.step > seen.step:
        seen.advance(event.step, event.records, now)
        seen.loss, seen.learning_rate = event.loss, event.learning_rate
    return []


def _plan_found(job: Job, event: ev.PlanFound, now: float) -> list[Action]:
    if job.trains_by_leases:
        return training.plan_found(job, event, now) + lease_training.opened(job, event, now)
    return training.plan_found(job, event, now) + leasing.opened(job, event, now)


_HANDLERS: dict[type, Handler] = {
    ev.MasterStarted: _master_started,
    ev.ReplicasListed: _listed,
    ev.ReplicaStarted: lifecycle.started,
    ev.ReplicaExited: lifecycle.exited,
    ev.Detached: ending.detached,
    ev.WorkerGreeted: _greeted,
    ev.SessionBroken: lifecycle.session_broken,
    ev.WorkerReady: lifecycle.ready,
    ev.RoundBroken: training.broken,
    ev.RoundEntered: training.entered,
    ev.WorkerLeaving: lifecycle.leaving,
    ev.SnapshotHeld: leasing.snapshot_held,
    ev.CheckpointWritten: training.checkpoint_written,
    ev.WorkerFinished: training.finished,
    ev.ModelExported: training.exported,
    ev.WorkerFailed: lifecycle.failed,
    ev.WorkerSaidGoodbye: lifecycle.goodbye,
    ev.PlanFound: _plan_found,
    ev.Exchanged: leasing.exchanged,
    ev.HeartbeatReceived: _heartbeat,
    ev.ScaleAsked: lifecycle.scale_asked,
    ev.StopAsked: ending.stop_asked,
    ev.WorkerLaunched: lifecycle.launched,
    ev.WorkerFellSilent: lifecycle.fell_silent,
    ev.WorkerReturned: lifecycle.returned,
    ev.LeaveOverdue: lifecycle.leave_overdue,
    ev.LeaseExpired: leasing.expired,
    ev.Progressed: training.progressed,
    ev.RoundPlanned: training.planned,
    ev.RoundSeen: training.seen,
    ev.ExportAsked: ending.export_asked,
    ev.PreparerChosen: lease_training.preparer_chosen,
    ev.EvaluationDue: lease_training.evaluation_due,
    ev.SaveAsked: lease_training.save_asked,
    ev.JobEnded: ending.ended,
}
