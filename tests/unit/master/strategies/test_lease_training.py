"""Lease training: every record is trained, and a batch keeps its lane and number whichever worker trains it."""

from __future__ import annotations

import signal
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import RecordLosses, ReplyToExchange
from elasticdl.master.machine.membership import WorkerState
from elasticdl.master.ps_fleet import ps_events
from elasticdl.master.strategies import training_progress
from elasticdl.master.strategies.shards import ShardLease, TrainingQueue
from elasticdl.spec import EvaluationSpec, PsId, PsMode, TimingSpec, WorkerId
from tests.properties import examples
from tests.unit.master.driver import Driver, job_spec, log_kinds, sent_messages, sent_signals

MINIBATCH = 64  # the default of a plan
RECORDS = 8000  # so many that shards are of two batches


def with_ps(driver: Driver) -> Driver:
    """Its one ps serves."""
    driver.do(ps_events.PsConnected(PsId("ps-0"), 90, "host", "host:9", 0, False))
    return driver


def training(workers: int = 2, records: int = RECORDS, epoch: int = 0, validation: int = 0, **spec: Any) -> Driver:
    """A job that trains by leases, its first state made by worker-0."""
    driver = with_ps(Driver(job_spec(workers=workers, ps=1, mode=PsMode.ASYNC, shard_records=2 * MINIBATCH, **spec)))
    driver.join(*(f"worker-{number}" for number in range(workers)))
    worker = WorkerId("worker-0")
    plan = ev.DataPlanReported(worker, driver.sequence(worker), 100, records, epoch or records, 100, validation)
    driver.do(plan)
    return driver


def step(lease: ShardLease, done: int) -> ev.LeaseReport:
    return ev.LeaseReport(lease.id, done, done >= lease.stop - lease.start, "", ())


def train_all(driver: Driver, worker: str, request: int = 1) -> int:
    """Take and finish leases until there are none; the next request."""
    reports: list[ev.LeaseReport] = []
    while True:
        answer = driver.exchange(worker, request, *reports)
        request += 1
        if not answer.leases:
            assert answer.is_drained
            return request
        reports = [step(lease, lease.stop - lease.start) for _, _, lease in answer.leases]


def test_one_worker_creates_the_first_state_and_another_one_if_it_dies() -> None:
    driver = with_ps(Driver(job_spec(ps=1, mode=PsMode.ASYNC)))
    actions = driver.join("worker-0", "worker-1")
    assert sent_messages(actions, "worker-0", "initialize") and not sent_messages(actions, "worker-1", "initialize")
    assert not driver.exchange("worker-1", 1).leases

    assert sent_messages(driver.exit("worker-0", signal=signal.SIGKILL), "worker-1", "initialize")
    driver.plan("worker-1", records=100)
    assert driver.exchange("worker-1", 2).leases


def test_a_failing_job_stops_all_workers_and_one_saves_what_is_on_the_ps() -> None:
    driver = training(output="/out")
    (_, _, lease) = driver.exchange("worker-1", 1).leases[0]
    driver.exchange("worker-1", 2, step(lease, lease.stop - lease.start), want=0)

    actions = driver.do(ev.WorkerFailed(WorkerId("worker-0"), driver.sequence("worker-0"), "bad record", True, True))
    assert sent_messages(actions, "worker-0", "stop") and sent_messages(actions, "worker-1", "stop")
    driver.finish("worker-0", step=2)
    (export,) = sent_messages(driver.finish("worker-1", step=2), "worker-0", "export")
    assert export.export.path == "", "there is no model to give"
    driver.export("worker-0")

    assert driver.phase == "failed" and "bad record" in driver.reason
    assert getattr(driver.machine.state.ledger.phase, "exit_code", None) == 2


def test_a_job_ends_with_a_checkpoint_and_a_model_once_all_data_is_trained() -> None:
    driver = training(output="/out")
    train_all(driver, "worker-1")
    assert driver.machine.state.ledger.records == RECORDS

    driver.finish("worker-1", step=16)
    (export,) = sent_messages(driver.finish("worker-0", step=16), "worker-0", "export")
    assert export.export.path == "/out" and export.export.progress
    driver.export("worker-0", "/out")

    assert driver.phase == "succeeded"
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_the_shard_of_a_dead_worker_keeps_its_lane_and_its_progress() -> None:
    driver = training()
    ((_, _, lease),) = driver.exchange("worker-0", 1).leases
    driver.exchange("worker-0", 2, step(lease, MINIBATCH), want=0)
    driver.exit("worker-0", signal=signal.SIGKILL)

    ((_, _, again),) = driver.exchange("worker-1", 1).leases

    assert (again.shard, again.lane, again.number, again.done) == (lease.shard, lease.lane, lease.number, MINIBATCH)


def test_a_worker_that_hangs_is_killed_and_its_shard_goes_to_another() -> None:
    driver = training(timing=TimingSpec(lease_s=5.0, heartbeat_timeout_s=100.0))
    ((_, _, lease),) = driver.exchange("worker-0", 1).leases

    assert ("worker-0", signal.SIGKILL) in sent_signals(driver.wait(5.0))
    ((_, _, again),) = driver.exchange("worker-1", 1).leases
    assert again.shard == lease.shard


def test_each_epoch_and_the_last_state_are_evaluated() -> None:
    driver = training(workers=1, records=512, epoch=256, validation=10)
    leases: list[tuple[str, int]] = []
    request, reports = 1, list[ev.LeaseReport]()
    while not (answer := driver.exchange("worker-0", request, *reports)).is_drained:
        leases += [(source, state_step) for source, state_step, _ in answer.leases]
        reports = [step(lease, lease.stop - lease.start) for _, _, lease in answer.leases]
        request += 1

    assert [state_step for source, state_step in leases if source == "validation"] == [4, 8]
    assert list(driver.machine.state.ledger.evaluations.results) == [4, 8]
    assert driver.machine.state.ledger.records == 512


def test_a_checkpoint_is_requested_every_n_batches() -> None:
    driver = training(checkpoint_steps=4)
    checkpoints, reports = list[int](), list[ev.LeaseReport]()
    for request in range(1, 6):
        actions = driver.do(ev.ExchangeReceived(WorkerId("worker-1"), request, tuple(reports), 1, ()))
        checkpoints += [
            message.write_checkpoint.step for message in sent_messages(actions, "worker-0", "write_checkpoint")
        ]
        answer = driver.worker("worker-1").last_reply
        assert answer is not None
        reports = [step(lease, lease.stop - lease.start) for _, _, lease in answer.leases]
    assert checkpoints == [4, 8]

    driver.do(ev.SessionLost(WorkerId("worker-0")))
    assert sent_messages(driver.connect("worker-0"), "worker-0", "write_checkpoint")  # it may not have received it
    driver.do(ev.CheckpointWritten(WorkerId("worker-0"), driver.sequence("worker-0"), 8, "/c", 0.1, 0.1))
    assert not sent_messages(driver.connect("worker-0"), "worker-0", "write_checkpoint")


def test_a_stop_ends_with_a_checkpoint_of_the_progress_so_far() -> None:
    driver = training()
    ((_, _, lease),) = driver.exchange("worker-0", 1).leases
    stopping = driver.do(ev.StopRequested(False, "asked"))
    assert sent_messages(stopping, "worker-0", "stop") and sent_messages(stopping, "worker-1", "stop")
    driver.exchange("worker-0", 2, step(lease, MINIBATCH), want=0)
    driver.finish("worker-1", reason="asked")
    (export,) = sent_messages(driver.finish("worker-0", reason="asked"), "worker-0", "export")
    driver.export("worker-0")

    assert (export.export.path, driver.phase) == ("", "stopped")
    fresh = TrainingQueue.create(driver.spec, RECORDS, 5.0)
    assert training_progress.restore_queue(export.export.progress.decode(), fresh).shards.done_records == MINIBATCH


def test_if_training_waits_for_evaluations_one_state_is_evaluated_and_saved() -> None:
    waits = EvaluationSpec(every_steps=2, wait=True)
    driver = training(validation=10, checkpoint_steps=2, evaluation=waits)
    first, second = (driver.exchange(worker, 1).leases[0][2] for worker in ("worker-0", "worker-1"))
    assert first.stop - first.start == MINIBATCH  # so that there is enough for both between two evaluations
    assert not driver.exchange("worker-1", 2, step(second, MINIBATCH)).leases  # worker-0 is still at it

    report = (step(first, MINIBATCH),)
    actions = driver.do(ev.ExchangeReceived(WorkerId("worker-0"), 2, report, 1, ()))
    assert [message.write_checkpoint.step for message in sent_messages(actions, "worker-0", "write_checkpoint")] == [2]
    assert not (answer := driver.worker("worker-0").last_reply) or not answer.leases
    ((source, state_step, lease),) = driver.exchange("worker-1", 3).leases
    assert (source, state_step) == ("validation", 2)
    assert not driver.exchange("worker-0", 3).leases

    driver.exchange("worker-1", 4, step(lease, 10), want=0)
    ((source, _, lease),) = driver.exchange("worker-0", 4).leases
    assert (source, lease.start) == ("training", 2 * MINIBATCH)
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_a_checkpoint_waits_for_the_evaluation_of_the_same_state() -> None:
    """Shards are of two batches here, evaluations are due after five: one more is trained before."""
    waits = EvaluationSpec(every_steps=5, wait=True)
    driver = training(workers=1, max_workers=1, validation=10, checkpoint_steps=5, evaluation=waits)
    checkpoints, evaluated, reports = list[int](), list[int](), list[ev.LeaseReport]()
    for request in range(1, 18, 2):
        halves = [step(lease, MINIBATCH) for lease in _held(driver)]
        actions = driver.do(ev.ExchangeReceived(WorkerId("worker-0"), request, tuple(halves), 0, ()))
        actions += driver.do(ev.ExchangeReceived(WorkerId("worker-0"), request + 1, tuple(reports), 1, ()))
        checkpoints += [
            message.write_checkpoint.step for message in sent_messages(actions, "worker-0", "write_checkpoint")
        ]
        answer = driver.worker("worker-0").last_reply
        assert answer is not None
        evaluated += [state_step for source, state_step, _ in answer.leases if source == "validation"]
        reports = [step(lease, lease.stop - lease.start) for _, _, lease in answer.leases]

    assert checkpoints == evaluated == [6, 10]


def _held(driver: Driver) -> list[ShardLease]:
    queue = driver.machine.state.ledger.training
    return list(queue.shards.leases.values()) if queue is not None else []


def test_the_shard_of_a_dead_worker_is_trained_before_all_wait_for_an_evaluation() -> None:
    driver = training(validation=10, evaluation=EvaluationSpec(every_steps=2, wait=True))
    first, second = (driver.exchange(worker, 1).leases[0][2] for worker in ("worker-0", "worker-1"))
    driver.exchange("worker-0", 2, step(first, MINIBATCH), want=0)
    driver.exit("worker-1", signal=signal.SIGKILL)

    ((source, _, again),) = driver.exchange("worker-0", 3).leases

    assert (source, again.shard) == ("training", second.shard)


def test_a_lost_worker_that_is_heard_again_gets_leases_again() -> None:
    driver = training()
    driver.exit("worker-1", code=0)
    ((_, _, lease),) = driver.exchange("worker-0", 1).leases

    driver.wait(4.0)
    assert driver.worker("worker-0").state is WorkerState.LOST
    driver.now += 0.1
    actions = driver.beat("worker-0")

    assert log_kinds(actions) == ["worker-returned"] and not sent_messages(actions, "worker-0", "reset")
    ((_, _, again),) = driver.exchange("worker-0", 1, step(lease, MINIBATCH)).leases
    assert again.shard == lease.shard, "what it does of the lease that went back to the others is not counted"
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_a_job_ends_even_if_its_only_worker_was_silent_while_it_exported() -> None:
    driver = training(output="/out")
    driver.exit("worker-1", code=0)
    driver.do(ev.StopRequested(False, "no better for 3 evaluations", is_training_done=True))
    assert driver.exchange("worker-0", 1).is_drained
    assert sent_messages(driver.finish("worker-0"), "worker-0", "export")

    driver.wait(4.0)
    assert driver.worker("worker-0").state is WorkerState.LOST
    driver.now += 0.1
    driver.beat("worker-0")
    driver.export("worker-0", "/out")

    assert driver.phase == "succeeded"


def test_a_training_that_a_callback_ends_is_exported_and_succeeds() -> None:
    driver = training(output="/out")
    ((_, _, lease),) = driver.exchange("worker-0", 1).leases
    driver.do(ev.StopRequested(False, "no better for 3 evaluations", is_training_done=True))
    waiting = driver.exchange("worker-1", 1)
    assert not waiting.leases and not waiting.is_drained  # worker-0 finishes its lease
    assert driver.exchange("worker-0", 2, step(lease, 2 * MINIBATCH)).is_drained
    assert driver.exchange("worker-1", 2).is_drained

    driver.finish("worker-1")
    (export,) = sent_messages(driver.finish("worker-0"), "worker-0", "export")
    driver.export("worker-0", "/out")

    assert export.export.path == "/out"
    assert driver.phase == "succeeded"
    assert driver.machine.state.ledger.recent_entries[-1].reason == "no better for 3 evaluations"
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_a_resumed_job_continues_at_the_position_of_its_checkpoint() -> None:
    first = training()
    ((_, _, lease),) = first.exchange("worker-0", 1).leases
    first.exchange("worker-0", 2, step(lease, MINIBATCH), want=0)
    saved_progress = training_progress.dump_progress(first.machine.state).decode()

    resumed = with_ps(Driver(job_spec(ps=1, mode=PsMode.ASYNC, shard_records=2 * MINIBATCH)))
    resumed.join("worker-0")
    plan = ev.DataPlanReported(
        WorkerId("worker-0"), resumed.sequence("worker-0"), 100, RECORDS, RECORDS, 100, 0, progress=saved_progress
    )
    resumed.do(plan)

    ((_, _, again),) = resumed.exchange("worker-0", 1).leases
    assert (again.shard, again.lane, again.number, again.done) == (lease.shard, lease.lane, lease.number, MINIBATCH)


@given(st.integers(1, 5000), st.integers(1, 2000), st.integers(1, 5000), st.integers(1, 300))
def test_a_changed_plan_skips_as_many_records_as_were_done(old: int, done: int, new: int, minibatch: int) -> None:
    driver = training(records=old)
    for number in range(done // (2 * MINIBATCH)):
        for _, _, lease in driver.exchange("worker-0", 2 * number + 1).leases:
            driver.exchange("worker-0", 2 * number + 2, step(lease, lease.stop - lease.start), want=0)
    before = driver.machine.state.ledger.records
    fresh = TrainingQueue.create(driver.spec, new, 5.0)
    fresh.minibatch = minibatch

    loaded = training_progress.restore_queue(training_progress.dump_progress(driver.machine.state).decode(), fresh)

    loaded.validate()
    assert loaded.shards.done_records <= max(before, 0)
    assert loaded.shards.done_records >= min(before, new) - loaded.shards.shard_records


class QueueMachine(RuleBasedStateMachine):
    """Workers take, advance, finish and die; now and then the job resumes from a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = TrainingQueue.create(job_spec(ps=1, mode=PsMode.ASYNC, shard_records=2 * MINIBATCH), 1999, 7.0)
        self.leases: dict[int, ShardLease] = {}
        self.next = 1
        self.names: dict[tuple[int, int], int] = {}  # (lane, number): position of the batch

    @rule(worker=st.integers(0, 3))
    def take(self, worker: int) -> None:
        lease = self.queue.take(WorkerId(f"worker-{worker}"), self.next, 0.0)
        if lease is None:
            return
        self.leases[self.next] = lease
        self.next += 1
        for batch, position in enumerate(range(lease.start, lease.stop, MINIBATCH)):
            assert self.names.setdefault((lease.lane, lease.number + batch), position) == position

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), finish=st.booleans())
    def report(self, data: st.DataObject, finish: bool) -> None:
        lease = self.leases[data.draw(st.sampled_from(sorted(self.leases)))]
        if finish:
            self.queue.finish(lease.id, lease.worker)
            del self.leases[lease.id]
        else:
            self.queue.shards.advance(lease.id, lease.worker, MINIBATCH, 0.0)

    @rule(worker=st.integers(0, 3))
    def die(self, worker: int) -> None:
        name = WorkerId(f"worker-{worker}")
        self.queue.shards.release(name)
        self.leases = {number: lease for number, lease in self.leases.items() if lease.worker != name}

    @rule()
    def go_on_from_a_checkpoint(self) -> None:
        driver = Driver(job_spec(ps=1, mode=PsMode.ASYNC))
        driver.machine.state.ledger.training = self.queue
        self.queue = training_progress.restore_queue(
            training_progress.dump_progress(driver.machine.state).decode(), self.queue
        )
        self.leases = {}

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        self.queue.validate()
        assert self.queue.lanes.count <= 4 * 20

    def teardown(self) -> None:
        for _ in range(200):
            if self.queue.shards.is_drained:
                return
            self.take(0)
            for lease in list(self.leases.values()):
                self.queue.finish(lease.id, lease.worker)
                del self.leases[lease.id]
        raise AssertionError("it never ends")


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=examples(60), stateful_step_count=40)


def test_each_batch_counts_once_in_the_points_and_in_the_epochs_of_the_loss() -> None:
    driver = training(records=5120, epoch=2560)
    draws, requests, weighted = list[RecordLosses](), count(1), 0.0

    def say(worker: str, *reports: ev.LeaseReport, want: int = 0) -> tuple[Any, ...]:
        actions = driver.do(ev.ExchangeReceived(WorkerId(worker), next(requests), reports, want, ()))
        draws.extend(action for action in actions if isinstance(action, RecordLosses))
        (reply,) = [action for action in actions if isinstance(action, ReplyToExchange)]
        assert reply.reply is not None
        return reply.reply.leases

    for number in range(40):
        worker, other_worker = f"worker-{number % 2}", f"worker-{1 - number % 2}"
        ((_, _, lease),) = say(worker, want=1)
        loss = 1.0 + number
        half = step(lease, MINIBATCH)._replace(sums=(("loss", (loss * MINIBATCH,), float(MINIBATCH)),))
        report = step(lease, 2 * MINIBATCH)._replace(sums=(("loss", (3 * loss * MINIBATCH,), float(MINIBATCH)),))
        say(worker, half)
        say(other_worker, report)  # it does not hold the lease: the report is ignored
        say(worker, report)
        weighted += 4 * loss * MINIBATCH

    points = [point for draw in draws for point in draw.points]
    epochs = [epoch for draw in draws for epoch in draw.epochs]
    assert [(point.step, point.loss) for point in points[:4]] == [(1, 1.0), (2, 3.0), (3, 2.0), (4, 6.0)]
    assert [point.step for point in points] == list(range(1, 81))
    assert [(epoch.epoch, epoch.step, epoch.records) for epoch in epochs] == [(1, 40, 2560), (2, 80, 2560)]
    assert sum(epoch.loss * epoch.records for epoch in epochs) == weighted
    assert driver.machine.state.strategy.newest_loss(driver.machine.state) == (80, 120.0)
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()
