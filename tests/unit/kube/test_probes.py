from __future__ import annotations

import socket
import threading

import pytest

from elasticdl.http_server import HttpServer
from elasticdl.kube.probes import HttpResponse, LoopHeartbeat, ProbeServer
from elasticdl.operator.health import HealthServer


def test_constructing_a_server_opens_no_socket_and_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a constructor acts")

    monkeypatch.setattr(socket, "create_server", refuse)
    monkeypatch.setattr(threading.Thread, "start", refuse)

    servers: list[ProbeServer | HealthServer | HttpServer] = [
        ProbeServer(0, lambda path: HttpResponse(200, path.encode())),
        HealthServer(0),
        HttpServer("127.0.0.1", 0, lambda request: HttpResponse(200, request.path.encode())),
    ]

    for server in servers:
        server.close()  # one that was never started has nothing to close


def test_a_heartbeat_names_the_silence_of_a_loop() -> None:
    now = [100.0]
    heartbeat = LoopHeartbeat(60.0, clock=lambda: now[0])

    now[0] += 60.0
    reason_in_time = heartbeat.silence_reason
    now[0] += 1.0

    assert reason_in_time == ""
    assert heartbeat.silence_reason == "the event loop has been silent for 61 s"
