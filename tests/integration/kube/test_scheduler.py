"""The probes of `elasticdl scheduler --on kubernetes --port` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticdl.kube.api import Api
from tests import probing
from tests.integration.kube.apiserver import ApiServer, free_port
from tests.integration.kube.elastic_job import install
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)


class SchedulerProcess:
    """A running scheduler."""

    def __init__(self, log: Path, environ: dict[str, str]) -> None:
        self.log, self.port = log, free_port()
        words = ["scheduler", "--on=kubernetes", "--device=cpu", "--interval=0.5", f"--port={self.port}"]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "elasticdl.cli", *words], env=environ, stdout=output, stderr=output
            )

    def ask(self, path: str) -> tuple[int, str]:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return probing.http_get(self.port, path, 5.0)
        except OSError as exc:
            return 0, str(exc)

    def wait(self, path: str, *expected: tuple[int, str]) -> None:
        until(f"{path} answers {expected}", lambda: self.ask(path) in expected, 120.0, tell=self.log.read_text)


StartScheduler = Callable[[], SchedulerProcess]
LEADER_ANSWERS = ((200, "it leads"), (200, "a turn is running"))


@pytest.fixture
def start(server: ApiServer, api: Api, namespace: str, tmp_path: Path) -> Iterator[StartScheduler]:
    install(api)
    schedulers: list[SchedulerProcess] = []
    environ = {**os.environ, "KUBECONFIG": str(server.kubeconfig(namespace=namespace))}

    def start() -> SchedulerProcess:
        schedulers.append(SchedulerProcess(tmp_path / f"scheduler-{len(schedulers)}.log", environ))
        return schedulers[-1]

    yield start
    for scheduler in schedulers:
        scheduler.process.kill()
        scheduler.process.wait(30)


def test_the_leader_and_a_waiting_scheduler_are_ready_and_live(start: StartScheduler) -> None:
    first = start()
    first.wait("/readyz", *LEADER_ANSWERS)

    second = start()
    second.wait("/readyz", (200, "it waits for the Lease"))
    assert first.ask("/healthz") == second.ask("/healthz") == (200, "ok")

    first.process.send_signal(signal.SIGTERM)
    second.wait("/readyz", *LEADER_ANSWERS)
    assert first.process.wait(30) == 0


def test_a_scheduler_without_its_api_server_is_live_but_not_ready(start: StartScheduler, server: ApiServer) -> None:
    scheduler = start()
    scheduler.wait("/readyz", *LEADER_ANSWERS)

    server.kill()
    try:
        until("it is not ready", lambda: scheduler.ask("/readyz")[0] == 503, tell=scheduler.log.read_text)
        until("it has lost the Lease", lambda: "cannot be reached" in scheduler.ask("/readyz")[1])
        assert scheduler.ask("/healthz") == (200, "ok")
    finally:
        server.start()
    scheduler.wait("/readyz", *LEADER_ANSWERS)
