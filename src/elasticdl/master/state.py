"""The master's state machine: events in, actions out. No socket, clock, thread or log in here.

    state.handle(event, now) -> actions       what happened
    state.due(now) -> event | None            what has to happen now; journaled and handled like any other

Replaying the journaled events gives the same state to the bit (`dump`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter

from elasticdl.master import (
    batching,
    deciding,
    ending,
    lease_training,
    leasing,
    lifecycle,
    notices,
    ps_events,
    ps_life,
    restarts,
    resuming,
    speeds,
    stalls,
    tasks,
    training,
)
from elasticdl.master import events as ev
from elasticdl.master.actions import Action, Send
from elasticdl.master.fleet import Ps
from elasticdl.master.job import Job, Ledger, Observations, PsSeen, new_ledger, send
from elasticdl.master.membership import GONE, Worker
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobSpec, PsId

_SEQUENCED = frozenset(ev.Sequenced.__args__)
_PS_SEQUENCED = frozenset(ps_events.PsSequenced.__args__)
_LEDGER: TypeAdapter[Ledger] = TypeAdapter(Ledger)

Handler = Callable[[Job, Any, float], list[Action]]


class JobState:
    """One job, from its first event to its last."""

    def __init__(self, spec: JobSpec, logs: str = "logs", first_cut: str = "") -> None:
        self.job = Job(spec, logs, new_ledger(spec), first_cut)

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        """Take note of `event` and say what to do about it."""
        kind = type(event)
        if kind in _SEQUENCED:
            return self._once(event, event.worker, self.job.ledger.membership.workers, now)  # type: ignore[union-attr]
        if kind in _PS_SEQUENCED:
            return self._once(event, event.ps, self.job.ledger.fleet.ps, now)  # type: ignore[union-attr]
        return _HANDLERS[kind](self.job, event, now)

    def _once(self, event: Any, name: Any, known: Mapping[Any, Worker | Ps], now: float) -> list[Action]:
        sender = known.get(name)
        if sender is None:
            return []  # nobody by this name has greeted: nothing to acknowledge, it will say so again
        actions: list[Action] = []
        if event.sequence > sender.sequence:
            sender.sequence = event.sequence
            actions = _HANDLERS[type(event)](self.job, event, now)
        return [*actions, acknowledge(name, sender.sequence)]

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
        ledger.fleet.validate()
        rounds, workers = ledger.rounds, ledger.membership.workers
        for evaluation in ledger.evaluations.open.values():
            evaluation.queue.validate()
            for lease in evaluation.queue.leases.values():
                assert workers[lease.worker].state not in GONE, f"{lease.worker} is gone but holds a lease"
        if ledger.training is not None:
            ledger.training.validate()
            for lease in ledger.training.shards.leases.values():
                assert workers[lease.worker].state not in GONE, f"{lease.worker} is gone but holds a lease"
        assert [c.id for c in ledger.batches] == list(range(1, len(ledger.batches) + 1)), (
            "a change of the batch is lost"
        )
        assert len({s.configuration for s in ledger.speeds}) == len(ledger.speeds), "a configuration twice"
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
    for ps in ledger.fleet.ps.values():
        ps.connected = False
    return [job.note(now, "master-restarted", reason=f"process {event.pid}")]


def _listed(job: Job, event: ev.ReplicasListed, now: float) -> list[Action]:
    job.seen.has_launcher = True
    return lifecycle.listed(job, event, now) + ps_life.listed(job, event, now)


def _started(job: Job, event: ev.ReplicaStarted, now: float) -> list[Action]:
    return lifecycle.started(job, event, now) + ps_life.started(job, event, now)


def _exited(job: Job, event: ev.ReplicaExited, now: float) -> list[Action]:
    return lifecycle.exited(job, event, now) + ps_life.exited(job, event, now)


def _waits(job: Job, event: ev.ReplicaWaits, now: float) -> list[Action]:
    return lifecycle.waits(job, event, now) + ps_life.waits(job, event, now)


def _session_broken(job: Job, event: ev.SessionBroken, now: float) -> list[Action]:
    if (ps := job.ledger.fleet.ps.get(PsId(event.worker))) is not None:
        ps.connected = False
    return lifecycle.session_broken(job, event, now)


def _scale_asked(job: Job, event: ev.ScaleAsked, now: float) -> list[Action]:
    by_role = lifecycle.scale_asked(job, event, now) + ps_life.scale_asked(job, event, now)
    return by_role + batching.scale_asked(job, event, now)


def _greeted(job: Job, event: ev.WorkerGreeted, now: float) -> list[Action]:
    job.seen.hear(event.worker, now, job.spec.timing.silence_s)
    return lifecycle.greeted(job, event, now)


def _heartbeat(job: Job, event: ev.HeartbeatReceived, now: float) -> list[Action]:
    seen = job.seen
    seen.hear(event.worker, now, job.spec.timing.silence_s)
    seen.beats[event.worker] = event
    if job.trains_by_leases:  # what is trained is known from the leases
        seen.learning_rate = event.learning_rate or seen.learning_rate
    elif event.step > seen.step:
        seen.advance(event.step, event.records, now)
        seen.loss, seen.learning_rate = event.loss, event.learning_rate
        seen.square, seen.variance = event.square, event.variance
        seen.progress, seen.batch_scale = event.progress, event.batch_scale
        speeds.heard(job)
    return []


def _ps_greeted(job: Job, event: ps_events.PsGreeted, now: float) -> list[Action]:
    job.seen.hear(event.ps, now, job.spec.timing.silence_s)
    job.seen.ps[event.ps] = PsSeen(now, event.map_version)
    return ps_life.greeted(job, event, now)


def _ps_beat(job: Job, event: ps_events.PsBeatReceived, now: float) -> list[Action]:
    job.seen.hear(event.ps, now, job.spec.timing.silence_s)
    job.seen.ps.setdefault(event.ps, PsSeen(now, 0)).take(event, now)
    return []


def _plan_found(job: Job, event: ev.PlanFound, now: float) -> list[Action]:
    if job.trains_by_leases:
        return training.plan_found(job, event, now) + lease_training.opened(job, event, now)
    return training.plan_found(job, event, now) + leasing.opened(job, event, now)


def _broken(job: Job, event: ev.RoundBroken, now: float) -> list[Action]:
    return (restarts.script_failed if job.restarts_script else training.broken)(job, event, now)


def _finished(job: Job, event: ev.WorkerFinished, now: float) -> list[Action]:
    return (restarts.script_ended if job.restarts_script else training.finished)(job, event, now)


_HANDLERS: dict[type, Handler] = {
    ev.MasterStarted: _master_started,
    ev.JobResumed: resuming.resumed,
    ev.ReplicasListed: _listed,
    ev.ReplicaStarted: _started,
    ev.ReplicaExited: _exited,
    ev.ReplicaWaits: _waits,
    ev.Detached: ending.detached,
    ev.WorkerGreeted: _greeted,
    ev.SessionBroken: _session_broken,
    ev.WorkerReady: lifecycle.ready,
    ev.RoundBroken: _broken,
    ev.RoundEntered: training.entered,
    ev.WorkerLeaving: lifecycle.leaving,
    ev.SnapshotHeld: leasing.snapshot_held,
    ev.CheckpointWritten: training.checkpoint_written,
    ev.WorkerFinished: _finished,
    ev.ModelExported: training.exported,
    ev.WorkerNoticed: notices.noticed,
    ev.BadRecordFound: notices.bad_record_found,
    ev.WorkerFailed: lifecycle.failed,
    ev.WorkerSaidGoodbye: lifecycle.goodbye,
    ev.PlanFound: _plan_found,
    ev.BatchScaled: batching.scaled,
    ev.LossesReported: training.losses_reported,
    ev.SpeedMeasured: speeds.measured,
    ev.StallNoticed: stalls.noticed,
    ev.StallEnded: stalls.stall_ended,
    ev.WorkerStalled: stalls.stalled,
    ev.RoundStalled: stalls.round_stalled,
    ev.Exchanged: leasing.exchanged,
    ev.HeartbeatReceived: _heartbeat,
    ps_events.PsGreeted: _ps_greeted,
    ps_events.PsBeatReceived: _ps_beat,
    ps_events.PsLeaving: ps_life.leaving,
    ps_events.SlotsMoved: tasks.moved,
    ps_events.PsFailed: ps_life.failed,
    ps_events.PsSaidGoodbye: ps_life.goodbye,
    ev.ScaleAsked: _scale_asked,
    ev.StopAsked: ending.stop_asked,
    ev.WorkerLaunched: lifecycle.launched,
    ev.WorkerFellSilent: lifecycle.fell_silent,
    ev.WorkerReturned: lifecycle.returned,
    ev.LeaveOverdue: lifecycle.leave_overdue,
    ev.LeaseExpired: leasing.expired,
    ev.Progressed: training.progressed,
    ev.RoundPlanned: training.planned,
    ev.ScriptsHalted: restarts.halted,
    ev.RoundSeen: training.seen,
    ev.ExportAsked: ending.export_asked,
    ev.PreparerChosen: lease_training.preparer_chosen,
    ev.EvaluationDue: lease_training.evaluation_due,
    ev.SaveAsked: lease_training.save_asked,
    ps_events.PsLaunched: ps_life.launched,
    ps_events.PsFellSilent: ps_life.fell_silent,
    ps_events.PsStallNoticed: ps_life.stall_noticed,
    ps_events.PsStalled: ps_life.stalled,
    ps_events.MirrorBroken: tasks.mirror_broken,
    ps_events.PsDrained: ps_life.drained,
    ps_events.SlotsDealt: tasks.dealt,
    ps_events.TaskGiven: tasks.given,
    ps_events.TaskSettled: tasks.settled,
    ev.JobEnded: ending.ended,
}
