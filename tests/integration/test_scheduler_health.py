"""The health probes of the scheduler of a cluster, over HTTP as a kubelet uses them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from elasticdl.kube.errors import ApiUnavailable
from elasticdl.kube.kinds import ELASTIC_JOB, NODE
from elasticdl.kube.probes import ProbeServer
from elasticdl.scheduler.kubernetes import server as serving
from elasticdl.scheduler.kubernetes.health import SILENCE_TIMEOUT_S, SchedulerHealth
from elasticdl.scheduler.kubernetes.namespace import NamespaceCluster
from elasticdl.scheduler.policies.goodput.policy import GoodputPolicy
from tests import probing
from tests.unit.scheduler.kubernetes.test_capacity import SLOT, node
from tests.unit.scheduler.kubernetes.test_namespace import Memory, elastic
from tests.waiting import until

Ask = Callable[[str], tuple[int, str]]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Unwell(NamespaceCluster):
    """A namespace whose API server is away, or never answers, when a test says so."""

    is_away = False
    serving: threading.Thread

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.answers = threading.Event()
        self.answers.set()

    def snapshot(self, now: float) -> Any:
        self.answers.wait(60)
        if self.is_away:
            raise ApiUnavailable("the API server is away")
        return super().snapshot(now)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Iterator[SchedulerHealth]:
    """Beating with an event loop of its own."""
    created, loop = SchedulerHealth(clock=clock), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    beating = asyncio.run_coroutine_threadsafe(created.heartbeat.run(), loop)
    yield created
    beating.cancel()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)
    loop.close()


@pytest.fixture
def ask(health: SchedulerHealth) -> Iterator[Ask]:
    with ProbeServer(0, health.answer_probe) as probes:
        yield lambda path: probing.http_get(probes.port, path, 20.0)


@pytest.fixture
def cluster(health: SchedulerHealth, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unwell]:
    """A cluster whose scheduler decides repeatedly once it is started."""
    memory = Memory()
    memory.objects[NODE] = [node("a")]
    memory.objects[ELASTIC_JOB] = [elastic("j")]
    monkeypatch.setattr(serving, "follow_changes", lambda *_: iter(()))
    monkeypatch.setattr(serving, "RETRY_S", 0.05)
    created = Unwell(memory, "here", SLOT, lambda: True)
    server = serving.NamespaceSchedulerServer(GoodputPolicy(), created, 0.05, health)
    created.serving = threading.Thread(target=server.run)
    yield created
    server.stop()
    created.answers.set()
    created.serving.join(20)
    assert not created.serving.is_alive()


def test_a_scheduler_is_ready_after_a_decision_unready_while_it_cannot_decide_and_dead_when_it_hangs(
    ask: Ask, cluster: Unwell, clock: Clock
) -> None:
    assert ask("/readyz") == (503, "it starts") and ask("/healthz") == (200, "ok")

    cluster.serving.start()
    until("it is ready", lambda: ask("/readyz")[0] == 200)

    cluster.is_away = True
    until("it is not ready", lambda: ask("/readyz") == (503, "the API server is away"))
    assert ask("/healthz") == (200, "ok"), "started again it could do no more"

    cluster.is_away = False
    until("it is ready again", lambda: ask("/readyz")[0] == 200)
    cluster.answers.clear()
    until("a turn is running", lambda: ask("/readyz") == (200, "a turn is running"))
    clock.now += SILENCE_TIMEOUT_S + 5.0
    dead = (503, "a turn is running, and the next turn is 5 s overdue")
    until("it is dead, though its event loop beats", lambda: ask("/healthz") == dead)


def test_a_request_for_an_unknown_path_is_answered_with_the_known_paths(ask: Ask) -> None:
    assert ask("/") == (404, "there are /healthz and /readyz")
