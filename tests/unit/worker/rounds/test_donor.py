"""Feeding newcomers between two steps, over real connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from elasticdl.collective.state_transfer import StateReceiver
from elasticdl.errors import RoundBroken
from elasticdl.worker.embeddings.tables import NoTables
from elasticdl.worker.rounds.donor import StateDonor
from elasticdl.worker.rounds.shared_state import ModelState
from elasticdl.worker.training.adaptive_batch import Update
from elasticdl.worker.training.state import TrainingState
from tests.unit.worker.trainings import new_training, reduced_gradient, train_steps
from tests.waiting import until

PATIENCE_S = 30.0


class Newcomer:
    """Asks `donor` for its state, and follows in a thread."""

    def __init__(self, donor: StateDonor, worker: str) -> None:
        donor_end, own_end = socket.socketpair()
        self.training = new_training()
        self.states = 0
        self._reception = StateReceiver(own_end, stall_s=PATIENCE_S)
        self._pool = ThreadPoolExecutor(1)
        donor.start_transfer(worker, donor_end)
        self.entered: Future[int] = self._pool.submit(self._follow)

    def _follow(self) -> int:
        try:
            return self._reception.follow(self._load, ModelState(self.training, NoTables()).apply_update)
        finally:
            self._reception.close()

    def _load(self, state: object) -> None:
        self.states += 1
        self.training.load(state)  # type: ignore[arg-type]

    def close(self) -> None:
        self._reception.abort()
        self._pool.shutdown()


@pytest.fixture
def donor() -> Iterator[StateDonor]:
    donor = StateDonor(PATIENCE_S)
    yield donor
    donor.close(PATIENCE_S)


@pytest.fixture
def newcomer(donor: StateDonor) -> Iterator[Newcomer]:
    newcomer = Newcomer(donor, "worker-1")
    yield newcomer
    newcomer.close()


def step(training: TrainingState, donor: StateDonor, enter: int = 0) -> bool:
    """One more update; always False, for `until`."""
    training.keeps_gradients = donor.has_followers
    training.open_update(reduced_gradient(training, training.step), Update(8), {})
    calls = training.close_update()
    donor.send_update(training, Update(8), calls, {}, enter, ends_step=True)
    return False


def same(one: TrainingState, other: TrainingState) -> bool:
    mine, theirs = one.capture(), other.capture()
    return mine.step == theirs.step and all(torch.equal(t, theirs.tensors[name]) for name, t in mine.tensors.items())


def wait_ready(donor: StateDonor, training: TrainingState) -> None:
    until("the newcomer is close", lambda: donor.are_caught_up(["worker-1"], training.step, 1.0))


def test_a_newcomer_gets_the_state_and_ends_with_the_same_bits(donor: StateDonor, newcomer: Newcomer) -> None:
    training = new_training()
    training.begin()
    step(training, donor)
    assert not donor.has_followers(), "nobody has planned a round with it"
    donor.set_newcomers(["worker-1"])
    step(training, donor)
    assert donor.has_followers()
    step(training, donor)
    wait_ready(donor, training)
    step(training, donor, enter=7)

    assert newcomer.entered.result(PATIENCE_S) == 7
    assert same(training, newcomer.training) and newcomer.states == 1


def test_a_donor_that_took_the_state_of_another_sends_an_image_again(donor: StateDonor, newcomer: Newcomer) -> None:
    training, ahead = new_training(), new_training()
    training.begin()
    train_steps(ahead, 3)
    donor.set_newcomers(["worker-1"])
    step(training, donor)
    step(training, donor)
    training.load(ahead.capture())  # a survivor of a lost round that was one step behind
    step(training, donor)
    until("it is close again", lambda: step(training, donor) or donor.are_caught_up(["worker-1"], training.step, 1.0))
    step(training, donor, enter=8)

    assert newcomer.entered.result(PATIENCE_S) == 8
    assert same(training, newcomer.training) and newcomer.states == 2


def test_a_newcomer_that_a_later_round_excludes_is_disconnected(donor: StateDonor, newcomer: Newcomer) -> None:
    training = new_training()
    training.begin()
    donor.set_newcomers(["worker-1"])
    step(training, donor)
    donor.set_newcomers([])

    with pytest.raises(RoundBroken, match=r"from the donor|the donor is gone"):
        newcomer.entered.result(PATIENCE_S)
    assert not donor.has_followers()


def test_a_newcomer_that_connects_before_its_round_is_known_is_not_dropped(
    donor: StateDonor, newcomer: Newcomer
) -> None:
    training = new_training()
    training.begin()
    donor.set_newcomers(["worker-9"])
    step(training, donor)
    donor.set_newcomers(["worker-1"])
    step(training, donor)
    wait_ready(donor, training)
    assert not newcomer.entered.done()


def test_a_worker_that_asks_again_replaces_its_older_transfer(donor: StateDonor, newcomer: Newcomer) -> None:
    again = Newcomer(donor, "worker-1")
    training = new_training()
    training.begin()
    donor.set_newcomers(["worker-1"])
    step(training, donor)
    wait_ready(donor, training)
    step(training, donor, enter=3)

    assert again.entered.result(PATIENCE_S) == 3
    with pytest.raises(RoundBroken):
        newcomer.entered.result(PATIENCE_S)
    again.close()


def test_a_newcomer_that_cannot_be_notified_to_enter_is_disconnected(donor: StateDonor, newcomer: Newcomer) -> None:
    training = new_training()
    training.begin()
    donor.set_newcomers(["worker-1"])
    step(training, donor, enter=3)

    with pytest.raises(RoundBroken):
        newcomer.entered.result(PATIENCE_S)


def test_an_update_that_does_not_follow_the_state_is_refused_by_the_newcomer(
    donor: StateDonor, newcomer: Newcomer
) -> None:
    training = new_training()
    training.begin()
    donor.set_newcomers(["worker-1"])
    step(training, donor)
    wait_ready(donor, training)
    newcomer.training.step += 1  # as if one were missing
    step(training, donor)

    with pytest.raises(RoundBroken, match="for a state of position"):
        newcomer.entered.result(PATIENCE_S)
