"""The donor's end of a state transfer, over real connections, plain and TLS: what slow and dead newcomers cost it."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.collective import frames
from elasticdl.collective.frames import Frame
from elasticdl.collective.state_transfer import StateReceiver, StateSender
from elasticdl.errors import RoundBroken
from elasticdl.launcher.certificate_authority import CertificateAuthority
from elasticdl.tls import Role, TlsCredentials
from tests.waiting import until

PATIENCE_S = 30.0
MIB = 1 << 20
STATE_BYTES = 24 * MIB
UPDATE_BYTES = 8 * MIB
SLACK_BYTES = 2 * MIB


Donate = Callable[..., StateSender]


class Ends(NamedTuple):
    donor: socket.socket
    newcomer: socket.socket


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> TlsCredentials:
    directory = tmp_path_factory.mktemp("tls")
    now = datetime.datetime.now(datetime.UTC)
    authority = CertificateAuthority.create("job", now)
    (directory / "authority.pem").write_text(authority.pem)
    credentials: Path = directory / "worker-0.pem"
    credentials.write_text(authority.issue(Role.WORKER, "worker-0", now, life_s=3600))
    return TlsCredentials(directory / "authority.pem", credentials, credentials, authority.job)


@pytest.fixture(params=["plain", "tls"])
def ends(request: pytest.FixtureRequest, identity: TlsCredentials) -> Iterator[Ends]:
    """Connections with small buffers, so that an unread one is soon full."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        newcomer = socket.create_connection(listener.getsockname())
        donor, _ = listener.accept()
    donor.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
    newcomer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    if request.param == "tls":
        donor, newcomer = encrypted(donor, newcomer, identity)
    with donor, newcomer:
        yield Ends(donor, newcomer)


def encrypted(
    donor: socket.socket, newcomer: socket.socket, identity: TlsCredentials
) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    with ThreadPoolExecutor(1) as pool:
        accepting = pool.submit(identity.server_context().wrap_socket, donor, server_side=True)
        connected = identity.client_context().wrap_socket(newcomer)
        return accepting.result(PATIENCE_S), connected


def captured_state(step: int, size_bytes: int = STATE_BYTES) -> CapturedState:
    count = size_bytes // 4 // 8
    return CapturedState(step, 8 * step, {f"t{n}": torch.full((count,), float(step)) for n in range(8)}, {})


def update(size_bytes: int = UPDATE_BYTES) -> dict[str, torch.Tensor]:
    return {"gradient": torch.ones(size_bytes // 4)}


@pytest.fixture
def donate(ends: Ends) -> Iterator[Donate]:
    """Starts a state transfer, whose thread does not outlive the test."""
    begun: list[StateSender] = []

    def begin(stall_s: float = PATIENCE_S) -> StateSender:
        begun.append(StateSender("worker-7", ends.donor, stall_s=stall_s, slack_bytes=SLACK_BYTES).start())
        return begun[-1]

    yield begin
    for donation in begun:
        donation.abort()
        donation.wait(PATIENCE_S)


class Newcomer:
    """Follows in a thread, and remembers what it received."""

    def __init__(self, connection: socket.socket, stall_s: float = PATIENCE_S) -> None:
        self.receiver = StateReceiver(connection, stall_s=stall_s)
        self.steps: list[int] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self._pool = ThreadPoolExecutor(1)
        self.entered: Future[int] = self._pool.submit(self.receiver.follow, self._load, self._apply)

    def _load(self, state: CapturedState) -> None:
        assert all(bool((tensor == state.step).all()) for tensor in state.tensors.values())
        self.steps.append(state.step)
        assert self.goes_on.wait(PATIENCE_S)

    def _apply(self, frame: Frame) -> None:
        assert self.steps[-1] == frame.header["step"] - 1
        self.steps.append(frame.header["step"])

    def close(self) -> None:
        self.receiver.abort()
        self._pool.shutdown()
        self.receiver.close()


def test_a_newcomer_that_reads_nothing_costs_one_copy_for_any_number_of_steps(ends: Ends, donate: Donate) -> None:
    donation = donate()
    states, most_unsent_bytes = 0, 0
    for step in range(1, 60):
        if donation.needs_state:
            donation.send_state(captured_state(step))
            states += 1
        elif donation.is_following:
            donation.send_update(step, {}, update(), 0)
        most_unsent_bytes = max(most_unsent_bytes, donation.unsent_bytes)

    assert states == 1
    assert most_unsent_bytes <= STATE_BYTES + UPDATE_BYTES + SLACK_BYTES + MIB
    assert not donation.is_following and not donation.needs_state
    donation.abort()
    assert donation.unsent_bytes == 0, "what nobody wants is not kept"


def test_a_newcomer_that_fell_behind_gets_a_new_state_after_the_first_is_sent(ends: Ends, donate: Donate) -> None:
    donation = donate()
    donation.send_state(captured_state(1))
    step = 1
    while donation.is_following:
        step += 1
        donation.send_update(step, {}, update(), 0)
    newcomer = Newcomer(ends.newcomer)
    until("all that was begun is sent", lambda: donation.needs_state)
    donation.send_state(captured_state(step))
    donation.send_update(step + 1, {}, update(), 5)
    donation.close()

    assert newcomer.entered.result(PATIENCE_S) == 5
    assert newcomer.steps == [1, step, step + 1]
    newcomer.close()
    donation.wait(PATIENCE_S)
    assert donation.has_ended


def test_sending_makes_room_so_a_newcomer_that_keeps_up_gets_one_image(ends: Ends, donate: Donate) -> None:
    donation = donate()
    donation.send_state(captured_state(1))
    newcomer = Newcomer(ends.newcomer)
    for step in range(2, 12):
        donation.send_update(step, {}, update(), 6 if step == 11 else 0)
        assert donation.is_following
        until("it has taken as much as was made", lambda: donation.unsent_bytes <= STATE_BYTES)
    donation.close()

    assert newcomer.entered.result(PATIENCE_S) == 6
    assert newcomer.steps == list(range(1, 12))
    newcomer.close()


def test_a_newcomer_that_never_keeps_up_gets_an_error_in_the_end(ends: Ends, donate: Donate) -> None:
    donation = donate()
    newcomer = Newcomer(ends.newcomer)
    step = 0
    while not donation.is_over:
        step += 1
        if donation.needs_state:
            newcomer.goes_on.clear()  # it is busy with the state while updates are made
            donation.send_state(captured_state(step))
        elif donation.is_following:
            donation.send_update(step, {}, update(), 0)
        else:
            newcomer.goes_on.set()
            time.sleep(0)
    newcomer.goes_on.set()

    with pytest.raises(RoundBroken, match="gave up: updates are made faster than this worker takes them"):
        newcomer.entered.result(PATIENCE_S)
    newcomer.close()
    donation.wait(PATIENCE_S)
    assert donation.has_ended and donation.unsent_bytes == 0


@pytest.mark.parametrize("ends", ["plain"], indirect=True)
def test_a_newcomer_that_reads_nothing_is_abandoned_after_the_deadline(ends: Ends, donate: Donate) -> None:
    donation = donate(0.2)
    donation.send_state(captured_state(1))

    until("it is given up", lambda: donation.is_over and donation.has_ended)
    assert donation.unsent_bytes == 0
    donation.send_update(2, {}, update(), 0)  # the training thread may not have seen it yet
    assert donation.unsent_bytes == 0


@pytest.mark.parametrize("ends", ["plain"], indirect=True)
def test_a_newcomer_that_reads_but_acknowledges_nothing_is_abandoned_too(ends: Ends, donate: Donate) -> None:
    donation = donate(0.5)
    donation.send_state(captured_state(1, 64))
    received = frames.receive_frame(ends.newcomer, MIB)

    assert received.header["step"] == 1
    until("it is given up", lambda: donation.has_ended)


@pytest.mark.parametrize("ends", ["plain"], indirect=True)
def test_a_slow_reader_is_not_abandoned_while_it_reads(ends: Ends, donate: Donate) -> None:
    donation = donate(1.0)
    began = time.monotonic()
    donation.send_state(captured_state(1))
    left = STATE_BYTES
    while left > 0 and time.monotonic() - began < 2.5:
        left -= len(ends.newcomer.recv(32 << 10))
        time.sleep(0.01)

    assert left > 0 and not donation.is_over
    donation.abort()


def test_a_donor_in_a_long_step_sends_heartbeats(ends: Ends, donate: Donate) -> None:
    donation = donate(0.4)
    newcomer = Newcomer(ends.newcomer, stall_s=0.4)
    time.sleep(1.5)  # several deadlines pass

    assert not newcomer.entered.done() and not donation.is_over
    donation.send_state(captured_state(1, 64))
    donation.send_update(2, {}, update(64), 3)
    assert newcomer.entered.result(PATIENCE_S) == 3
    newcomer.close()


@pytest.mark.parametrize("ends", ["plain"], indirect=True)
def test_a_silent_donor_is_abandoned(ends: Ends) -> None:
    receiver = StateReceiver(ends.newcomer, stall_s=0.2)

    with pytest.raises(RoundBroken, match=r"sent nothing for 0\.2 s"):
        receiver.follow(lambda state: None, lambda frame: None)
    receiver.close()


@pytest.mark.parametrize("ends", ["plain"], indirect=True)
@pytest.mark.parametrize(
    "header",
    [
        {},
        {"kind": "state"},
        {"kind": "state", "step": 1, "records": 2},
        {"kind": "state", "step": 1, "records": "x", "meta": {}},
        {"kind": "update", "step": -1, "enter": 0},
        {"kind": "update", "step": True, "enter": 0},
        {"kind": "other", "step": 1},
    ],
)
def test_a_frame_of_an_unexpected_kind_ends_the_transfer(ends: Ends, header: dict[str, object]) -> None:
    ends.donor.sendall(b"".join(frames.split_frame(Frame(header, {}))))
    receiver = StateReceiver(ends.newcomer, stall_s=PATIENCE_S)

    with pytest.raises(RoundBroken, match="no state from the donor"):
        receiver.follow(lambda state: None, lambda frame: None)
    receiver.close()


@pytest.mark.parametrize("ends", ["plain"], indirect=True)
def test_a_state_larger_than_the_newcomer_could_hold_is_refused_before_it_is_allocated(ends: Ends) -> None:
    text = b'{"header": {"kind": "state", "step": 1}, "tensors": [["a", "uint8", [1099511627776]]]}'
    ends.donor.sendall(len(text).to_bytes(4, "big") + text)
    receiver = StateReceiver(ends.newcomer, stall_s=PATIENCE_S, max_bytes=MIB)

    with pytest.raises(RoundBroken, match="1099511627776 bytes where 1048576 are the most"):
        receiver.follow(lambda state: None, lambda frame: None)
    receiver.close()
