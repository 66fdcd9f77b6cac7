"""The port-forward to a master: every connection goes to the current pod of the master."""

from __future__ import annotations

import socket
import stat
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from elasticdl.errors import MasterUnreachable, SpecError
from elasticdl.jobs.kubernetes import port_forward, submission
from elasticdl.kube.kinds import POD, SECRET
from elasticdl.launcher.kubernetes import job_secrets
from elasticdl.spec import load
from elasticdl.spec.directory import JobDirectory
from tests.unit.cli.fake_api import FakeApi
from tests.waiting import until


def echo() -> tuple[str, int]:
    """A server that sends back in capitals what it receives."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            end, _ = server.accept()
            with end:
                while piece := end.recv(1 << 16):
                    end.sendall(piece.upper())

    threading.Thread(target=serve, daemon=True).start()
    return str(server.getsockname()[0]), int(server.getsockname()[1])


def exchange(port: int, text: bytes) -> bytes:
    """Send text to the echo server; returns the reply."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as end:
        reply = b""
        with suppress(ConnectionError):
            end.sendall(text)
            while len(reply) < len(text) and (piece := end.recv(1 << 16)):
                reply += piece
        return reply


@pytest.fixture
def job(cluster: FakeApi) -> FakeApi:
    document = {"name": "digits", "model": {"definition": "m.f"}, "cluster": {"image": "i", "namespace": "default"}}
    spec = load.resolve_job(document)
    submission.create_objects(cluster, spec, job_secrets.create_secrets(spec))  # type: ignore[arg-type]
    cluster.master = echo()
    return cluster


def forward_to(job: FakeApi) -> port_forward.PortForward:
    return port_forward.PortForward(lambda: port_forward.connect_master_pod(job, "default", "digits"))  # type: ignore[arg-type]


def test_all_bytes_are_forwarded(job: FakeApi) -> None:
    job.run_master("digits")

    text = b"abcdefgh" * (1 << 17)
    with forward_to(job) as forward:
        assert exchange(forward.port, text) == text.upper()


def test_each_connection_resolves_the_master_again(job: FakeApi) -> None:
    with forward_to(job) as forward:
        assert exchange(forward.port, b"x") == b""  # there is none yet
        job.run_master("digits", "digits-master-1")
        assert exchange(forward.port, b"x") == b"X"
        job.objects[POD, "default", "digits-master-1"]["metadata"]["deletionTimestamp"] = "2026-11-15T01:00:00Z"
        job.run_master("digits", "digits-master-2")
        assert exchange(forward.port, b"x") == b"X"

    assert job.forwards == ["digits-master-1", "digits-master-2"]


def test_a_new_port_forward_has_no_port_and_no_thread(job: FakeApi) -> None:
    threads = threading.active_count()

    forward = forward_to(job)

    assert (forward.port, threading.active_count()) == (0, threads)
    with forward:
        assert forward.port > 0


def test_a_connection_that_was_established_too_late_serves_the_next_client(job: FakeApi) -> None:
    job.run_master("digits")
    may_answer = threading.Event()
    dials: list[int] = []

    def dial_once() -> socket.socket:
        dials.append(1)
        if len(dials) > 1:
            raise MasterUnreachable("only once")
        may_answer.wait(10)
        return port_forward.connect_master_pod(job, "default", "digits")  # type: ignore[arg-type]

    with port_forward.PortForward(dial_once) as forward:
        socket.create_connection(("127.0.0.1", forward.port)).close()  # gives up waiting
        may_answer.set()

        # A later client gets the only connection that was made.
        end = time.monotonic() + 10
        while (reply := exchange(forward.port, b"x")) == b"" and time.monotonic() < end:
            pass
        assert reply == b"X"


def test_the_end_of_a_port_forward_closes_its_connections(job: FakeApi) -> None:
    job.run_master("digits")
    with forward_to(job) as forward:
        end = socket.create_connection(("127.0.0.1", forward.port), timeout=10)
        end.sendall(b"x")
        assert end.recv(1) == b"X"
    with end:
        assert end.recv(1) == b""
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", forward.port), timeout=1)


def test_a_master_that_does_not_run_is_unreachable(job: FakeApi) -> None:
    job.run_master("digits", phase="Pending")

    with pytest.raises(MasterUnreachable, match="has no running pod, it is Pending"):
        port_forward.connect_master_pod(job, "default", "digits")  # type: ignore[arg-type]


def test_credentials_are_readable_only_by_their_owner_and_deleted_afterwards(job: FakeApi) -> None:
    with port_forward.reach_master(job, "default", "digits") as directory:  # type: ignore[arg-type]
        identity = directory.tls_credentials(directory.load_spec(), "client")
        assert identity is not None
        private = [directory.token, identity.certificate, identity.key, identity.authority]
        assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
        assert stat.S_IMODE(directory.root.stat().st_mode) == 0o700

    assert not directory.root.exists()


def test_a_job_without_its_secret_cannot_be_reached(job: FakeApi, tmp_path: Path) -> None:
    del job.objects[SECRET, "default", "digits-secret"]

    with pytest.raises(SpecError, match="has no Secret digits-secret in namespace default"):
        port_forward.write_credentials(JobDirectory(tmp_path / "x"), job, "default", "digits")  # type: ignore[arg-type]


def test_a_port_forward_has_a_limit_of_connections() -> None:
    pairs: list[tuple[socket.socket, socket.socket]] = []

    def dial() -> socket.socket:
        pairs.append(socket.socketpair())
        return pairs[-1][0]

    with port_forward.PortForward(dial) as forward, ExitStack() as stack:
        for _ in range(port_forward.MAX_CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", forward.port), timeout=10)).sendall(b"x")
        until("all are forwarded", lambda: len(pairs) == port_forward.MAX_CONNECTIONS)

        assert exchange(forward.port, b"one too many") == b""
        assert len(pairs) == port_forward.MAX_CONNECTIONS
    for pair in pairs:
        for end in pair:
            end.close()
