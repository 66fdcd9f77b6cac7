"""When a ps server acquires its sockets and threads, and when it releases them."""

from __future__ import annotations

import threading

from elasticdl.ps.server.ps_server import PsServer
from elasticdl.ps.tables.state import PsState
from elasticdl.spec import PsId
from tests.resources import acquires_nothing


def test_a_server_starts_no_thread_and_opens_no_socket_before_start() -> None:
    with acquires_nothing():
        server = PsServer(PsState(PsId("ps-0"), seed=1), "token", "127.0.0.1", threads=2)
        server.close()


def test_a_server_serves_inside_of_with() -> None:
    names_before = {thread.name for thread in threading.enumerate()}

    with PsServer(PsState(PsId("ps-0"), seed=1), "token", "127.0.0.1", threads=2) as server:
        started = {thread.name for thread in threading.enumerate()} - names_before
        assert server.address.startswith("127.0.0.1:") and not server.address.endswith(":0")

    assert started == {"serving-0", "serving-1", "ps-router", "ps-authenticator"}
    assert started.isdisjoint(thread.name for thread in threading.enumerate())
