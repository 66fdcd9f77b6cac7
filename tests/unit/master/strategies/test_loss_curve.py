"""The loss curve from the workers to the curves: every point once, in order, whichever worker dies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import Action, RecordLosses
from elasticdl.master.runtime import codec
from elasticdl.master.views.status import job_status
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import WorkerId
from elasticdl.worker.training.loss_history import MAX_POINTS_PER_MESSAGE, LossHistory, UpdateLoss
from tests.unit.master.driver import Driver, running, sent_messages

STEPS_PER_EPOCH = 7
BATCH = 10


def point(step: int) -> UpdateLoss:
    """What every worker computes for the update that ends with `step`."""
    return UpdateLoss(step, 1.0 / step, 0.1 / (step + 1), step * BATCH)


def mean(first: int, last: int) -> float:
    """Of the losses of steps `first` … `last`, all with as many records, summed in their order."""
    total = 0.0
    for step in range(first, last + 1):
        total += point(step).loss * BATCH
    return total / ((last - first + 1) * BATCH)


def plan(driver: Driver, total_steps: int = 700) -> None:
    per_epoch = STEPS_PER_EPOCH * BATCH
    worker = WorkerId("worker-0")
    driver.do(
        ev.DataPlanReported(
            worker, driver.sequence(worker), total_steps, total_steps * BATCH, per_epoch, STEPS_PER_EPOCH, 0
        )
    )


def apply(losses: LossHistory, *steps: int) -> None:
    for step in steps:
        losses.add(step - 1, point(step), BATCH)


def report(driver: Driver, worker: str, message: pb.LossReport) -> list[Action]:
    sequence = driver.sequence(worker)
    event = codec.event_from_worker(WorkerId(worker), pb.WorkerMessage(sequence=sequence, loss_report=message))
    assert event is not None
    return driver.do(event)


def drawn(actions: list[Action]) -> list[RecordLosses]:
    return [action for action in actions if isinstance(action, RecordLosses)]


def test_a_point_that_two_workers_report_is_recorded_once() -> None:
    driver = running(2)
    plan(driver)
    first, second = LossHistory(STEPS_PER_EPOCH), LossHistory(STEPS_PER_EPOCH)
    for losses in (first, second):
        apply(losses, 1, 2, 3)
    message = first.take_unsent()
    assert message is not None and first.take_unsent() is None, "sent once"
    actions = report(driver, "worker-0", message)
    assert [point.step for point in drawn(actions)[0].points] == [1, 2, 3]
    for worker in ("worker-0", "worker-1"):
        assert [message.losses_journaled.step for message in sent_messages(actions, worker, "losses_journaled")] == [3]

    apply(second, 4)
    again = second.take_unsent()
    assert again is not None and list(again.step) == [1, 2, 3, 4], "it does not know yet"
    assert [point.step for point in drawn(report(driver, "worker-1", again))[0].points] == [4]

    apply(first, 4)
    first.forget_until(4)
    assert first.take_unsent() is None
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_every_epoch_is_logged_with_the_mean_of_its_losses() -> None:
    driver = running(1)
    plan(driver)
    losses = LossHistory(STEPS_PER_EPOCH, every=100)
    apply(losses, *range(1, 16))
    message = losses.take_unsent()
    assert message is not None and not message.step, "no step is a hundredth"

    (draw,) = drawn(report(driver, "worker-0", message))

    assert draw.points == ()
    assert [(epoch.epoch, epoch.step, epoch.loss, epoch.records) for epoch in draw.epochs] == [
        (1, 7, mean(1, 7), 70), (2, 14, mean(8, 14), 70),
    ]  # fmt: skip
    reasons = [entry.reason for entry in driver.machine.state.ledger.recent_entries if entry.kind == "epoch-ended"]
    assert reasons[0] == f"epoch 1 of 100: mean loss {mean(1, 7):.6g} over 70 records"


def test_the_loss_of_a_job_is_that_of_its_last_step() -> None:
    driver = running(1)
    plan(driver, total_steps=10)
    driver.beat("worker-0", step=4)
    assert (
        job_status(driver.machine.state, driver.now).loss,
        job_status(driver.machine.state, driver.now).loss_step,
    ) == (
        0.5,
        4,
    )
    losses = LossHistory(STEPS_PER_EPOCH)
    apply(losses, *range(1, 11))
    last, epoch = losses.newest, losses.epoch
    assert last is not None and epoch is not None
    finished = pb.Finished(step=10, records=100, loss=last.loss, epoch=epoch.to_message())
    event = codec.event_from_worker(
        WorkerId("worker-0"), pb.WorkerMessage(sequence=driver.sequence("worker-0"), finished=finished)
    )
    assert event is not None
    driver.do(event)

    status = job_status(driver.machine.state, driver.now)
    assert (status.loss, status.loss_step) == (0.1, 10)
    assert (status.epoch_loss.epoch, status.epoch_loss.loss, status.epoch_loss.records) == (2, mean(8, 10), 30)
    assert job_status(driver.replayed().state, driver.now).loss == 0.1, "a restarted master knows it, too"


def test_the_number_of_epochs_is_that_of_the_reported_plan() -> None:
    driver = running(1)
    assert job_status(driver.machine.state, driver.now).records_per_epoch == 0
    plan(driver, total_steps=10)
    status = job_status(driver.machine.state, driver.now)
    assert (status.records_per_epoch, status.epochs, status.total_records) == (70, 2, 100)


def test_a_message_is_bounded_however_many_points_wait() -> None:
    losses = LossHistory(STEPS_PER_EPOCH)
    apply(losses, *range(1, 2 * MAX_POINTS_PER_MESSAGE + 10))
    messages = []
    while (message := losses.take_unsent()) is not None:
        messages.append(message)

    assert [len(message.step) for message in messages] == [MAX_POINTS_PER_MESSAGE, MAX_POINTS_PER_MESSAGE, 9]
    assert [step for message in messages for step in message.step] == list(range(1, 2 * MAX_POINTS_PER_MESSAGE + 10))
    assert [message.until for message in messages] == [
        MAX_POINTS_PER_MESSAGE,
        2 * MAX_POINTS_PER_MESSAGE,
        2 * MAX_POINTS_PER_MESSAGE + 9,
    ]
    assert sum(len(message.epochs) for message in messages) == (2 * MAX_POINTS_PER_MESSAGE + 9) // STEPS_PER_EPOCH


def test_an_update_of_several_steps_is_one_point() -> None:
    losses = LossHistory(steps_per_epoch=12, every=4)
    for began, step in ((0, 3), (3, 6), (6, 12), (12, 13), (13, 16)):
        losses.add(began, point(step), BATCH)
    message = losses.take_unsent()

    assert message is not None
    assert list(message.step) == [6, 12, 16], "the update that reaches the fourth, eighth, … step"
    assert [(epoch.epoch, epoch.step) for epoch in message.epochs] == [(1, 12)]


class Workers:
    """Workers of a job, each with a real curve; messages that did not arrive are lost with their sender."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.driver = running(2)
        plan(self.driver)
        self.curves = {"worker-0": self.new(), "worker-1": self.new()}
        self.under_way: list[tuple[str, pb.LossReport]] = []
        self.step = 0
        self.born = 2
        self.drawn: list[RecordLosses] = []

    def new(self) -> LossHistory:
        return LossHistory(STEPS_PER_EPOCH, self.every)

    @property
    def rank_0(self) -> str:
        return next(iter(self.curves))

    def train(self) -> None:
        self.step += 1
        for curve in self.curves.values():
            apply(curve, self.step)

    def send(self, worker: str) -> None:
        while (message := self.curves[worker].take_unsent()) is not None:
            self.under_way.append((worker, message))

    def deliver(self) -> None:
        """The oldest message arrives; all who live hear what is known."""
        if not self.under_way:
            return
        worker, message = self.under_way.pop(0)
        actions = report(self.driver, worker, message)
        self.drawn += drawn(actions)
        for curve in self.curves.values():
            curve.forget_until(self.driver.machine.state.ledger.loss_curve.complete_until)

    def kill_rank_0(self) -> None:
        """With all it has not delivered."""
        if len(self.curves) < 2:
            return
        lost = self.rank_0
        del self.curves[lost]
        self.under_way = [(worker, message) for worker, message in self.under_way if worker != lost]

    def join(self) -> None:
        donor, newcomer = self.curves[self.rank_0], self.new()
        newcomer.load_state(donor.epoch_sums(), donor.unreported_points())
        worker = f"worker-{self.born}"
        self.born += 1
        self.driver.connect(worker)
        self.curves[worker] = newcomer

    def restart_master(self) -> None:
        before = self.driver.machine.dump_ledger()
        state = self.driver.replayed()
        assert state.dump_ledger() == before
        self.driver.machine = state


@given(
    st.lists(st.sampled_from(["train", "train", "train", "send", "deliver", "kill", "join", "restart"]), max_size=60),
    st.integers(1, 4),
)
def test_every_point_is_recorded_once_and_in_order_whichever_worker_dies(happenings: list[str], every: int) -> None:
    workers = Workers(every)
    for happening in happenings:
        match happening:
            case "train":
                workers.train()
            case "send":
                workers.send(workers.rank_0)
            case "deliver":
                workers.deliver()
            case "kill":
                workers.kill_rank_0()
            case "join":
                workers.join()
            case "restart":
                workers.restart_master()
    for worker in list(workers.curves):  # at the end all say what the master may not know
        workers.send(worker)
    while workers.under_way:
        workers.deliver()

    points = [point for draw in workers.drawn for point in draw.points]
    expected = [point(step) for step in range(every, workers.step + 1, every)]
    assert [(point.step, point.loss, point.learning_rate) for point in points] == [row[:3] for row in expected]
    assert [point.at for point in points] == sorted(point.at for point in points)
    epochs = [epoch for draw in workers.drawn for epoch in draw.epochs]
    assert [(epoch.epoch, epoch.loss) for epoch in epochs] == [
        (number, mean(7 * number - 6, 7 * number)) for number in range(1, workers.step // STEPS_PER_EPOCH + 1)
    ]
