"""A state transfer over a real loopback connection: both ends in one process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch
from torch import nn

from elasticdl.checkpoint import captured_state
from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.collective.frames import Frame
from elasticdl.collective.peers import ConnectionPurpose, PeerCredentials, PeerListener
from elasticdl.collective.state_transfer import StateReceiver, StateSender
from elasticdl.errors import RoundBroken
from tests.waiting import until

CREDENTIALS = PeerCredentials("worker-7", "the token of the job")
PATIENCE_S = 10.0


class Trained:
    """A model that is trained by whole gradients."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.step = 0

    def gradient(self) -> torch.Tensor:
        size = sum(p.numel() for p in self.model.parameters())
        return torch.randn(size, generator=torch.Generator().manual_seed(self.step))

    def update(self, gradient: torch.Tensor) -> None:
        start = 0
        for parameter in self.model.parameters():
            parameter.grad = gradient[start : start + parameter.numel()].view(parameter.shape).clone()
            start += parameter.numel()
        self.optimizer.step()
        self.step += 1

    def state(self) -> CapturedState:
        return captured_state.capture_state(self.model, self.optimizer, self.step, 8 * self.step)

    def load(self, state: CapturedState) -> None:
        captured_state.restore_state(state, self.model, self.optimizer)
        self.step = state.step

    def apply(self, frame: Frame) -> None:
        self.update(frame.tensors["gradient"])
        assert self.step == frame.header["step"]


class Donations:
    """The transfers to newcomers that connected."""

    def __init__(self) -> None:
        self._opened: list[StateSender] = []
        self._changed = threading.Condition()

    def open(self, worker: str, connection: socket.socket) -> None:
        with self._changed:
            self._opened.append(StateSender(worker, connection, stall_s=PATIENCE_S).start())
            self._changed.notify_all()

    def next(self) -> StateSender:
        with self._changed:
            assert self._changed.wait_for(lambda: self._opened, PATIENCE_S)
            return self._opened.pop(0)

    @property
    def is_empty(self) -> bool:
        return not self._opened


@pytest.fixture
def donations() -> Donations:
    return Donations()


@pytest.fixture
def door(donations: Donations) -> Iterator[PeerListener]:
    handlers = {ConnectionPurpose.STATE: lambda greeting, connection: donations.open(greeting.worker, connection)}
    door = PeerListener("127.0.0.1", CREDENTIALS, handlers).start()
    yield door
    door.close()


@pytest.fixture
def newcomer() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def same(one: Trained, other: Trained) -> bool:
    mine, theirs = one.state(), other.state()
    return mine.meta == theirs.meta and all(torch.equal(t, theirs.tensors[name]) for name, t in mine.tensors.items())


def follow(door: PeerListener, newcomer: ThreadPoolExecutor, trained: Trained) -> tuple[StateReceiver, Future[int]]:
    reception = StateReceiver.connect(door.address, CREDENTIALS, PATIENCE_S, PATIENCE_S)
    return reception, newcomer.submit(reception.follow, trained.load, trained.apply)


def test_a_state_and_later_updates_give_the_same_bits(
    door: PeerListener, donations: Donations, newcomer: ThreadPoolExecutor
) -> None:
    old, new = Trained(0), Trained(1)
    old.update(old.gradient())
    reception, entered = follow(door, newcomer, new)
    donation = donations.next()
    assert donation.worker == "worker-7"
    assert donation.needs_state
    donation.send_state(old.state())
    for enter in (0, 0, 5):
        gradient = old.gradient()
        old.update(gradient)
        donation.send_update(old.step, {"records": 8}, {"gradient": gradient}, enter)
    donation.close()

    assert entered.result(PATIENCE_S) == 5
    assert (old.step, new.step) == (4, 4)
    assert same(old, new)
    reception.close()


def test_a_wrong_token_gets_nothing(door: PeerListener, donations: Donations, newcomer: ThreadPoolExecutor) -> None:
    with pytest.raises(RoundBroken, match="closed the connection"):
        StateReceiver.connect(door.address, PeerCredentials("worker-7", "another token"), PATIENCE_S, PATIENCE_S)
    assert donations.is_empty


def test_the_donor_knows_how_far_the_newcomer_is(
    door: PeerListener, donations: Donations, newcomer: ThreadPoolExecutor
) -> None:
    old, new = Trained(0), Trained(1)
    reception, entered = follow(door, newcomer, new)
    donation = donations.next()
    assert not donation.is_caught_up(0, behind=5), "it has nothing yet"
    donation.send_state(old.state())
    gradient = old.gradient()
    old.update(gradient)
    donation.send_update(old.step, {"records": 8}, {"gradient": gradient}, 9)

    assert entered.result(PATIENCE_S) == 9
    until("the acknowledgement has come", lambda: donation.is_caught_up(old.step, behind=0))
    assert not donation.is_caught_up(old.step + 2, behind=1)
    reception.close()
    donation.abort()


def test_a_donor_that_dies_ends_the_transfer(
    door: PeerListener, donations: Donations, newcomer: ThreadPoolExecutor
) -> None:
    reception, entered = follow(door, newcomer, Trained(1))
    donation = donations.next()
    donation.send_state(Trained(0).state())
    donation.abort()

    with pytest.raises(RoundBroken, match="no state from the donor"):
        entered.result(PATIENCE_S)
    assert donation.is_over
    reception.close()


def test_the_newcomer_can_end_the_transfer_from_another_thread(
    door: PeerListener, donations: Donations, newcomer: ThreadPoolExecutor
) -> None:
    reception, entered = follow(door, newcomer, Trained(1))
    donations.next()
    reception.abort()

    with pytest.raises(RoundBroken):
        entered.result(PATIENCE_S)
    reception.close()


def test_a_refused_connection_is_reported(door: PeerListener) -> None:
    door.close()

    with pytest.raises(RoundBroken, match="no state transfer from"):
        StateReceiver.connect(door.address, CREDENTIALS, 1.0, 1.0)


def test_the_lag_of_a_newcomer_is_counted_in_updates_not_steps(door: PeerListener, donations: Donations) -> None:
    reception = StateReceiver.connect(door.address, CREDENTIALS, PATIENCE_S, PATIENCE_S)
    donation = donations.next()
    donation.send_state(Trained(0).state())
    for step in (16, 32):
        donation.send_update(step, {}, {"gradient": torch.zeros(4)}, 7 if step == 32 else 0)
    assert reception.follow(lambda state: None, lambda frame: None) == 7
    until("the last step is acknowledged", lambda: donation.is_caught_up(32, behind=0))

    assert donation.is_caught_up(48, behind=1)
    assert not donation.is_caught_up(49, behind=1)
    reception.close()
    donation.abort()
