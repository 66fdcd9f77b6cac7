"""Random events of a job: nothing is lost or doubled, and the replayed state equals the live state."""

from __future__ import annotations

import signal
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import Action, WriteLogEntry
from elasticdl.master.machine.membership import GONE_WORKER_STATES, WorkerState
from elasticdl.master.machine.state import MAX_NOTABLE_ENTRIES, MAX_RECENT_ENTRIES
from elasticdl.master.machine.state_machine import StateMachine
from elasticdl.master.strategies.allreduce import AllReduceTraining
from elasticdl.spec import JobKind, WorkerId
from tests.properties import examples
from tests.unit.master.driver import Driver, job_spec, running

NUMBERS = st.integers(0, 9)


class JobMachine(RuleBasedStateMachine):
    """Rules pick a worker by number among those to which they apply."""

    @initialize(kind=st.sampled_from([JobKind.TRAINING, JobKind.PREDICTION]), min_workers=st.integers(1, 2))
    def start(self, kind: JobKind, min_workers: int) -> None:
        self.driver = Driver(
            job_spec(kind=kind, workers=2, min_workers=min_workers, max_workers=4, ranks=5, budget=50, shard_records=7)
        )
        self.rounds: list[int] = []
        self.finished: list[int] = []
        self.requests: dict[str, int] = {}
        self.entries = self.driver.machine.state.ledger.entry_count
        self.step = 0

    def pick(self, number: int, *states: WorkerState) -> str | None:
        workers = self.driver.machine.state.ledger.membership.workers.values()
        candidates = [
            worker.id
            for worker in workers
            if worker.state in states and not worker.has_said_goodbye and not worker.has_exited
        ]
        return candidates[number % len(candidates)] if candidates else None

    def see(self, actions: list[Action]) -> None:
        numbers = [action.number for action in actions if isinstance(action, WriteLogEntry)]
        assert numbers == list(range(self.entries + 1, self.entries + 1 + len(numbers))), "an entry is lost or doubled"
        self.entries += len(numbers)

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.5, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.see(self.driver.wait(seconds))

    @rule(number=NUMBERS, ready=st.booleans())
    def greets(self, number: int, ready: bool) -> None:
        worker = self.pick(number, *WorkerState)
        if worker is not None:
            current = self.driver.machine.state.ledger.rounds.current
            entered = current.id if current and worker in current.workers else 0
            self.see(self.driver.connect(worker, entered=entered, ready=ready))

    @rule(number=NUMBERS)
    def an_external_worker_greets(self, number: int) -> None:
        self.see(self.driver.connect(f"worker-{90 + number}"))

    @rule(number=NUMBERS)
    def is_ready(self, number: int) -> None:
        worker = self.pick(number, WorkerState.STARTING)
        if worker is not None:
            self.see(self.driver.ready(worker))

    @rule(number=NUMBERS, code=st.sampled_from([None, 0, 1]), killed=st.booleans())
    def exits(self, number: int, code: int | None, killed: bool) -> None:
        worker = self.pick(number, *WorkerState)
        if worker is not None:
            self.see(self.driver.exit(worker, None if killed else code, signal.SIGKILL if killed else None))

    @rule(number=NUMBERS)
    def leaves(self, number: int) -> None:
        worker = self.pick(number, WorkerState.MEMBER, WorkerState.READY, WorkerState.JOINING)
        if worker is not None:
            self.see(self.driver.leave(worker))

    @rule(number=NUMBERS)
    def says_goodbye(self, number: int) -> None:
        worker = self.pick(number, WorkerState.LEAVING, WorkerState.FINISHED)
        if worker is not None:
            self.see(self.driver.goodbye(worker))

    @rule()
    def the_newest_round_is_entered(self) -> None:
        if self.driver.machine.state.ledger.rounds.newest is not None:
            self.step += 1
            self.see(self.driver.enter(self.step, gap_s=0.1))

    @rule(number=NUMBERS, back=st.integers(0, 2), is_of_donor=st.booleans())
    def drops_its_round(self, number: int, back: int, is_of_donor: bool) -> None:
        worker = self.pick(number, WorkerState.MEMBER, WorkerState.JOINING, WorkerState.LEAVING)
        newest = self.driver.machine.state.ledger.rounds.newest
        if worker is not None and newest is not None:
            broken = max(1, newest.id - back)
            donors = [member.donor for member in newest.members if is_of_donor and member.worker == worker]
            event = ev.RoundFailed(WorkerId(worker), self.driver.sequence(worker), broken, "", "".join(donors))
            self.see(self.driver.do(event))

    @rule(number=NUMBERS, forward=st.booleans(), compute_s=st.sampled_from([0.0, 0.01, 0.05]))
    def beats(self, number: int, forward: bool, compute_s: float) -> None:
        worker = self.pick(number, *(set(WorkerState) - {WorkerState.LAUNCHING}))
        if worker is not None:
            self.step += forward
            beat = self.driver.heartbeat(worker, step=self.step, compute_s=compute_s)
            timed: dict[str, Any] = {
                "timed_steps": self.step,
                "one_pass_step_s": 0.1 + compute_s,
                "pass_s": compute_s,
                "gradient_variance": 1.0,
            }
            self.see(self.driver.do(beat._replace(**timed)))

    @rule(number=NUMBERS)
    def finds_the_plan(self, number: int) -> None:
        worker = self.pick(number, WorkerState.STARTING, WorkerState.MEMBER)
        if worker is not None:
            self.see(self.driver.plan(worker, records=60, validation=40))

    @rule(number=NUMBERS, step=st.integers(1, 4))
    def holds_a_snapshot(self, number: int, step: int) -> None:
        worker = self.pick(number, WorkerState.MEMBER)
        if worker is not None:
            self.see(self.driver.snapshot(worker, step * 10))

    @rule(number=NUMBERS, want=st.integers(0, 3), again=st.booleans(), how=st.sampled_from(["done", "part", "failed"]))
    def exchanges(self, number: int, want: int, again: bool, how: str) -> None:
        worker = self.pick(number, WorkerState.MEMBER, WorkerState.FINISHED, WorkerState.LOST)
        if worker is None:
            return
        leases = [
            (evaluation.step, lease)
            for evaluation in self.driver.machine.state.ledger.evaluations.open.values()
            for lease in evaluation.queue.leases.values()
            if lease.worker == worker
        ][:1]
        reports = [
            ev.LeaseReport(
                lease.id,
                lease.stop - lease.start if how == "done" else 1,
                how == "done",
                "bad" if how == "failed" else "",
                (("accuracy", (1.0,), 2.0),),
            )
            for _, lease in leases
        ]
        if not again:
            self.requests[worker] = self.requests.get(worker, 0) + 1
        event = ev.ExchangeReceived(WorkerId(worker), self.requests.get(worker, 1), tuple(reports), want, ())
        self.see(self.driver.do(event))

    @rule(workers=st.integers(1, 4))
    def is_scaled(self, workers: int) -> None:
        self.see(self.driver.do(ev.ScaleRequested(workers)))

    @rule(scale=st.integers(1, 4))
    def its_batch_is_scaled(self, scale: int) -> None:
        self.see(self.driver.do(ev.ScaleRequested(0, batch_scale=scale)))

    @rule(number=NUMBERS, change=st.integers(1, 3))
    def a_change_of_the_batch_took_effect(self, number: int, change: int) -> None:
        worker = self.pick(number, WorkerState.MEMBER)
        if worker is not None:
            sequence = self.driver.sequence(worker)
            self.see(self.driver.do(ev.BatchScaled(WorkerId(worker), sequence, change, self.step, 2)))

    @precondition(lambda self: self.step > 3)
    @rule(number=NUMBERS)
    def finishes(self, number: int) -> None:
        worker = self.pick(number, WorkerState.MEMBER)
        if worker is not None and isinstance(self.driver.machine.state.strategy, AllReduceTraining):
            self.see(self.driver.finish(worker, step=self.step))

    @rule(number=NUMBERS)
    def exports(self, number: int) -> None:
        worker = self.pick(number, WorkerState.FINISHED)
        if worker is not None:
            self.see(self.driver.export(worker))

    @precondition(lambda self: self.step > 5)
    @rule(at_once=st.booleans())
    def is_stopped(self, at_once: bool) -> None:
        self.see(self.driver.do(ev.StopRequested(at_once, "enough")))

    @rule()
    def the_master_dies_and_comes_back(self) -> None:
        self.driver.machine = self.driver.replayed()
        workers = self.driver.machine.state.ledger.membership.workers.values()
        alive = tuple((worker.id, worker.pid) for worker in workers if not worker.has_exited and not worker.is_external)
        self.see(self.driver.do(ev.MasterStarted(2)))
        self.see(self.driver.do(ev.ReplicasListed(alive, ())))

    @invariant()
    def replay_equals_live(self) -> None:
        if hasattr(self, "driver"):
            assert self.driver.replayed().dump_ledger() == self.driver.machine.dump_ledger()

    @invariant()
    def a_saved_state_is_the_state(self) -> None:
        if hasattr(self, "driver"):
            saved = StateMachine(self.driver.spec)
            saved.load_ledger(self.driver.machine.dump_ledger())
            assert saved.dump_ledger() == self.driver.machine.dump_ledger()

    @invariant()
    def rounds_only_grow_and_donors_hold_the_state(self) -> None:
        if not hasattr(self, "driver"):
            return
        newest = self.driver.machine.state.ledger.rounds.newest
        if newest is None or (self.rounds and newest.id == self.rounds[-1]):
            return
        assert not self.rounds or newest.id > self.rounds[-1]
        self.rounds.append(newest.id)
        if newest.is_forced:
            assert not any(member.donor for member in newest.members)
        assert all(member.donor != member.worker for member in newest.members)
        for member in newest.members:
            assert not member.donor or member.donor in self.driver.machine.state.ledger.rounds.holders

    @invariant()
    def every_alive_member_is_known(self) -> None:
        if not hasattr(self, "driver"):
            return
        ledger = self.driver.machine.state.ledger
        newest = ledger.rounds.newest
        for worker in ledger.membership.workers.values():
            if worker.state is WorkerState.JOINING:
                assert newest is not None and worker.id in newest.workers
            if worker.state in GONE_WORKER_STATES:
                assert worker.id not in [
                    lease.worker for work in ledger.evaluations.open.values() for lease in work.queue.leases.values()
                ]


TestJobMachine = JobMachine.TestCase
TestJobMachine.settings = settings(max_examples=examples(60), stateful_step_count=40)


def test_a_restored_state_limits_its_log_entries_as_before() -> None:
    driver = running(1)
    driver.machine.load_ledger(driver.machine.dump_ledger())
    state = driver.machine.state

    for number in range(MAX_RECENT_ENTRIES + 1):
        state.add_log_entry(driver.now, "scaled", reason=str(number))

    assert len(state.ledger.recent_entries) == MAX_RECENT_ENTRIES
    assert len(state.ledger.notable_entries) == MAX_NOTABLE_ENTRIES
