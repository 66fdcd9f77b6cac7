"""The fork server with real processes: a forked replica equals a spawned one, and jobs run without the server."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.launcher.interface import ExitedProcess
from elasticdl.launcher.local import fork_client
from elasticdl.launcher.local.fork_client import ForkFailed, ForkServer
from elasticdl.launcher.local.watched_process import WatchedProcess
from tests.integration import forked_replica
from tests.waiting import until

TIMEOUT_S = 60.0
ARGV = [sys.executable, "-P", "-m", forked_replica.MODULE]
ADDED = {"ELASTICDL_WORKER": "worker-7", "ELASTICDL_RUN": "3"}
_PR_SET_CHILD_SUBREAPER = 36

Start = Callable[..., ForkServer]


@pytest.fixture
def environ() -> dict[str, str]:
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture
def start(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts fork servers that end with the test."""
    monkeypatch.setattr(fork_client, "FORKED_MODULES", (forked_replica.MODULE,))
    servers: list[ForkServer] = []

    def start_server(*modules: str) -> ForkServer:
        servers.append(ForkServer.start(environ, time.time(), modules or ("numpy",)))
        return servers[-1]

    yield start_server
    for server in servers:
        server.close()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
def server(start: Start) -> ForkServer:
    server = start()
    wait_ready(server)
    return server


def wait_ready(server: ForkServer) -> None:
    assert select.select([server], [], [], TIMEOUT_S)[0]
    server.receive()
    assert server.is_ready


def wait_end(child: WatchedProcess) -> ExitedProcess:
    assert select.select([child], [], [], TIMEOUT_S)[0]
    return child.reap(0.0)


def describe_forked(server: ForkServer, environ: dict[str, str], log: Path) -> dict[str, Any]:
    child = server.fork("worker-7", ARGV, environ=environ | ADDED, log=log, now=0.0)
    assert wait_end(child).code == 0, log.read_text()
    description: dict[str, Any] = json.loads(log.read_text())
    return description


def test_a_forked_replica_is_equivalent_to_a_spawned_one(
    server: ForkServer, environ: dict[str, str], tmp_path: Path
) -> None:
    forked, log = describe_forked(server, environ, tmp_path / "log"), tmp_path / "log"
    log.unlink()

    child = WatchedProcess.spawn("worker-7", ARGV, environ=environ | ADDED, log=log, now=0.0)

    assert wait_end(child).code == 0
    assert forked_replica.without_identity(forked) == forked_replica.without_identity(json.loads(log.read_text()))


def test_forked_replicas_draw_different_random_numbers(
    server: ForkServer, environ: dict[str, str], tmp_path: Path
) -> None:
    first, second = (describe_forked(server, environ, tmp_path / name) for name in ("first", "second"))

    assert first["random"] != second["random"]
    assert first["numpy_random"] != second["numpy_random"]


def test_a_forked_replica_has_the_limits_that_the_launcher_has_now(
    server: ForkServer, environ: dict[str, str], tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        description = describe_forked(server, environ, tmp_path / "log")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert [soft - 1, hard] in description["limits"]


@pytest.mark.parametrize(("argument", "code"), [("fail", 3), ("raise", 1)])
def test_the_exit_of_a_forked_replica_is_reported(
    server: ForkServer, environ: dict[str, str], tmp_path: Path, argument: str, code: int
) -> None:
    child = server.fork("worker-0", [*ARGV, argument], environ=environ, log=tmp_path / "log", now=0.0)

    exited = wait_end(child)

    assert (exited.code, exited.signal) == (code, None)
    assert exited.peak_bytes > 1 << 20


def test_a_forked_replica_survives_the_server(server: ForkServer, environ: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = server.fork("worker-0", [*ARGV, "sleep"], environ=environ, log=log, now=0.0)

    server.close()

    until("its description", lambda: log.read_text().endswith("\n"), TIMEOUT_S)
    child.signal(signal.SIGTERM)
    assert wait_end(child).signal == signal.SIGTERM


def test_a_command_with_another_environment_or_program_is_not_forked(
    server: ForkServer, environ: dict[str, str]
) -> None:
    assert server.can_fork(ARGV, environ | ADDED)
    assert server.can_fork([*ARGV, "sleep"], environ)
    assert not server.can_fork(ARGV, {name: value for name, value in environ.items() if name != "PATH"})
    assert not server.can_fork(ARGV, environ | {"PATH": "/other"})
    assert not server.can_fork([sys.executable, "-c", "pass"], environ)
    assert not server.can_fork([sys.executable, "-P", "-m", "json.tool"], environ)


def test_a_server_whose_modules_start_threads_refuses(start: Start, tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "starts_a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    environ["PYTHONPATH"] += os.pathsep + str(tmp_path)

    server = start("starts_a_thread")

    assert select.select([server], [], [], TIMEOUT_S)[0]
    server.receive()
    assert not server.is_open


@pytest.mark.parametrize("problem", ["ImportError('an extra')", "PermanentError('the native core')"])
def test_a_module_that_cannot_be_imported_is_left_to_the_replica(
    start: Start, tmp_path: Path, environ: dict[str, str], problem: str
) -> None:
    (tmp_path / "needs_more.py").write_text(f"from elasticdl.errors import PermanentError\nraise {problem}\n")
    environ["PYTHONPATH"] += os.pathsep + str(tmp_path)

    server = start("needs_more", "numpy")

    wait_ready(server)

    assert server.is_ready and server.is_open


def test_torch_can_be_forked(start: Start) -> None:
    server = start(*fork_client.PRELOADED_MODULES)

    wait_ready(server)

    assert server.is_ready and server.is_open


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_stopped_server_forks_nothing(
    server: ForkServer, environ: dict[str, str], tmp_path: Path, number: int
) -> None:
    os.kill(server.pid, number)

    with pytest.raises(ForkFailed):
        server.fork("worker-0", ARGV, environ=environ, log=tmp_path / "log", now=0.0)

    assert not server.is_open
    assert (tmp_path / "log").read_text() == ""


def test_a_server_that_is_stopped_during_imports_is_detected(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_client, "STALL_TIMEOUT_S", 0.2)
    server = start(*fork_client.PRELOADED_MODULES)
    os.kill(server.pid, signal.SIGSTOP)

    until("the stall", lambda: server.is_stalled(time.monotonic()), TIMEOUT_S)
