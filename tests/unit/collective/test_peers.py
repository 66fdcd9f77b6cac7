"""A worker's listener: which callers are accepted, and what the others cost."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.collective.peers import ConnectionPurpose, Greeting, PeerCredentials, PeerListener, connect_to_peer
from tests.unit.collective.members import CREDENTIALS as _SHOWN
from tests.unit.collective.members import HERE, SOON_S, issue_identities
from tests.waiting import until

CREDENTIALS = replace(_SHOWN, worker="worker-3", run=2)
GREETING = Greeting("worker-3", ConnectionPurpose.ROUND, run=2, round=5, rank=1)

OpenDoor = Callable[..., PeerListener]


class Callers:
    """The callers that were accepted."""

    def __init__(self) -> None:
        self.greetings: list[Greeting] = []
        self.connections: list[socket.socket] = []

    def add(self, greeting: Greeting, connection: socket.socket) -> None:
        self.connections.append(connection)
        self.greetings.append(greeting)


@pytest.fixture
def callers() -> Callers:
    return Callers()


@pytest.fixture
def open_door(callers: Callers) -> Iterator[OpenDoor]:
    with contextlib.ExitStack() as stack:

        def build(**options: float) -> PeerListener:
            door = PeerListener(HERE, CREDENTIALS, dict.fromkeys(ConnectionPurpose, callers.add), **options).start()  # type: ignore[arg-type]
            stack.callback(door.close)
            return door

        yield build
    for connection in callers.connections:
        connection.close()


def connect(door: PeerListener) -> socket.socket:
    host, port = door.address.split(":")
    return socket.create_connection((host, int(port)), timeout=SOON_S)


def is_hung_up(connection: socket.socket) -> bool:
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def test_a_peer_gets_in_and_both_ends_are_connected(open_door: OpenDoor, callers: Callers) -> None:
    connection = connect_to_peer(open_door().address, CREDENTIALS, GREETING, SOON_S)
    until("it is let in", lambda: callers.greetings)
    connection.sendall(b"hello")
    assert callers.connections[0].recv(5) == b"hello"
    assert callers.greetings == [GREETING]
    connection.close()


@pytest.mark.parametrize(
    ("credentials", "greeting"),
    [(replace(CREDENTIALS, token="another"), GREETING), (CREDENTIALS, replace(GREETING, run=1))],
    ids=["another token", "another run"],
)
def test_a_caller_of_another_run_is_disconnected(
    open_door: OpenDoor, callers: Callers, credentials: PeerCredentials, greeting: Greeting
) -> None:
    door = open_door()
    with pytest.raises(ConnectionError, match="closed the connection"):
        connect_to_peer(door.address, credentials, greeting, SOON_S)
    until("it is counted", lambda: door.refused == 1)
    assert not callers.greetings


def test_the_token_is_never_sent(callers: Callers) -> None:
    """A caller that reaches a stranger's listener tells it nothing it could use."""
    with socket.create_server((HERE, 0)) as stranger:
        address = f"{HERE}:{stranger.getsockname()[1]}"
        failure: list[OSError] = []

        def dial() -> None:
            with pytest.raises(OSError, match="does not hold the token") as caught:
                connect_to_peer(address, CREDENTIALS, GREETING, SOON_S)
            failure.append(caught.value)

        thread = threading.Thread(target=dial)
        thread.start()
        connection, _ = stranger.accept()
        connection.sendall(b"EDL1" + bytes(32))
        received = connection.recv(4096)
        connection.sendall(bytes(32))
        thread.join(SOON_S)
        connection.close()
    assert failure
    assert CREDENTIALS.token.encode() not in received


def test_a_caller_that_sends_slowly_is_disconnected(open_door: OpenDoor) -> None:
    """The deadline is for the whole greeting, not for each byte of it."""
    door = open_door(greeting_s=0.5)
    slow = connect(door)
    ended = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            while not ended.wait(0.05):
                slow.send(b"\0")

    thread = threading.Thread(target=trickle)
    thread.start()
    assert is_hung_up(slow)
    ended.set()
    thread.join()
    slow.close()


def test_a_thousand_strangers_hold_no_more_connections_than_allowed(open_door: OpenDoor, callers: Callers) -> None:
    door = open_door(max_callers=16, greeting_s=600.0)
    threads = threading.active_count()
    strangers = [connect(door) for _ in range(1000)]
    until("the others are hung up on", lambda: door.refused >= 1000 - 16)
    held = len(os.listdir("/proc/self/fd")) - len(strangers)
    assert held < 80  # those of the test itself, and at most 16 callers
    assert threading.active_count() == threads
    connect_to_peer(door.address, CREDENTIALS, GREETING, SOON_S).close()
    until("a peer is let in among them", lambda: callers.greetings)
    for stranger in strangers:
        stranger.close()


def test_running_out_of_descriptors_closes_the_listener_only_briefly(open_door: OpenDoor, callers: Callers) -> None:
    door = open_door()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    caller = socket.socket()
    used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
    try:
        held = []
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        host, port = door.address.split(":")
        caller.connect((host, int(port)))  # the kernel accepts it; the listener cannot
        until("the door has noticed", lambda: door.is_paused)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)
    connect_to_peer(door.address, CREDENTIALS, GREETING, SOON_S).close()
    until("it is let in", lambda: callers.greetings)
    caller.close()


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n" + bytes(100), bytes(200), b"\xff" * 66], ids=str)
def test_a_caller_that_sends_garbage_is_disconnected(open_door: OpenDoor, callers: Callers, garbage: bytes) -> None:
    stranger = connect(open_door())
    stranger.sendall(garbage)
    assert is_hung_up(stranger)
    assert not callers.greetings
    stranger.close()


def test_a_failing_handler_does_not_end_the_listener(callers: Callers) -> None:
    def fail(greeting: Greeting, connection: socket.socket) -> None:
        raise RuntimeError("a fault of the test")

    door = PeerListener(
        HERE, CREDENTIALS, {ConnectionPurpose.STATE: fail, ConnectionPurpose.ROUND: callers.add}
    ).start()
    lost = connect_to_peer(door.address, CREDENTIALS, replace(GREETING, purpose=ConnectionPurpose.STATE), SOON_S)
    assert is_hung_up(lost)
    lost.close()
    connect_to_peer(door.address, CREDENTIALS, GREETING, SOON_S).close()
    until("it is let in", lambda: callers.greetings)
    callers.connections[0].close()
    door.close()


@given(st.binary(max_size=300))
def test_a_malformed_greeting_is_a_connection_error(text: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        Greeting.decode(text)


def test_a_greeting_is_decoded_as_it_was_encoded() -> None:
    assert Greeting.decode(GREETING.encode()) == GREETING


@pytest.fixture
def tls(tmp_path: Path) -> Callable[[str], PeerCredentials]:
    identities = issue_identities(tmp_path)
    return lambda replica: replace(CREDENTIALS, worker=replica, tls=identities(replica))


def test_with_tls_a_worker_gets_in_by_its_certificate(tls: Callable[[str], PeerCredentials], callers: Callers) -> None:
    door = PeerListener(HERE, tls("worker-0"), {ConnectionPurpose.ROUND: callers.add}).start()
    connection = connect_to_peer(door.address, tls("worker-3"), GREETING, SOON_S)
    connection.sendall(b"hello")
    until("it is let in", lambda: callers.greetings)
    assert callers.connections[0].recv(5) == b"hello"
    assert isinstance(callers.connections[0], ssl.SSLSocket)
    for end in (connection, *callers.connections):
        end.close()
    door.close()


@pytest.mark.parametrize("shown", ["worker-4", "worker", "ps-3", "client", None])
def test_with_tls_no_worker_can_act_as_another(
    tls: Callable[[str], PeerCredentials], callers: Callers, shown: str | None
) -> None:
    """Not another worker, one that has not enrolled, another role, or none: all have the token."""
    door = PeerListener(HERE, tls("worker-0"), {ConnectionPurpose.ROUND: callers.add}).start()
    credentials = tls(shown) if shown else CREDENTIALS
    with pytest.raises(OSError, match=r"closed the connection|no worker|reset|timed out|EOF"):
        connect_to_peer(door.address, credentials, GREETING, 2.0)
    assert not callers.greetings
    until("it is counted", lambda: door.refused)
    door.close()


def test_with_tls_a_caller_without_a_handshake_is_disconnected(tls: Callable[[str], PeerCredentials]) -> None:
    door = PeerListener(HERE, tls("worker-0"), {}, greeting_s=0.3).start()
    silent, garbled = connect(door), connect(door)
    garbled.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert is_hung_up(garbled)
    assert is_hung_up(silent)
    silent.close()
    garbled.close()
    door.close()
