"""What makes the scheduler decide again, and how it handles failures."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from elasticdl.kube.errors import ApiUnavailable
from elasticdl.kube.kinds import ELASTIC_JOB, NODE, ResourceKind
from elasticdl.kube.watch import ObjectChange
from elasticdl.scheduler.kubernetes import server as serving
from elasticdl.scheduler.kubernetes.annotations import REQUESTED_WORKERS
from elasticdl.scheduler.kubernetes.health import SchedulerHealth
from elasticdl.scheduler.kubernetes.namespace import NamespaceCluster
from elasticdl.scheduler.policies.goodput.policy import GoodputPolicy
from tests.unit.scheduler.kubernetes.test_capacity import SLOT, node
from tests.unit.scheduler.kubernetes.test_namespace import Memory, elastic, spec, worker
from tests.waiting import until


def test_a_job_that_comes_ends_or_asks_for_other_sizes_is_news() -> None:
    job = elastic("j")

    assert serving.has_job_changed(ObjectChange(None, job))
    assert serving.has_job_changed(ObjectChange(job, None))
    assert serving.has_job_changed(ObjectChange(job, elastic("j", phase="Succeeded")))
    assert serving.has_job_changed(ObjectChange(job, elastic("j", high=8)))
    assert not serving.has_job_changed(ObjectChange(job, elastic("j", phase="Running")))
    ours = elastic("j", workers=4, annotations={REQUESTED_WORKERS: "2"})
    assert not serving.has_job_changed(ObjectChange(job, ours))


def test_a_node_that_comes_goes_or_has_more_is_news_and_its_heartbeat_is_not() -> None:
    beat = copy.deepcopy(node("a"))
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "now"

    assert not serving.has_node_changed(ObjectChange(node("a"), beat))
    for other_job in (None, node("a", slots="8"), node("a", unschedulable=True), node("a", ready="Unknown")):
        assert serving.has_node_changed(ObjectChange(node("a"), other_job))


def test_the_end_of_a_pod_is_news_unless_its_job_goes_on_and_its_beginning_is_not() -> None:
    pod = worker("j", 0, "a")
    over = {**pod, "status": {"phase": "Succeeded"}}

    for end in (ObjectChange(pod, over), ObjectChange(pod, None)):
        assert serving.has_pod_ended(end, {"k"}) and not serving.has_pod_ended(end, {"j", "k"})
    assert not serving.has_pod_ended(ObjectChange(None, pod), set()) and not serving.has_pod_ended(
        ObjectChange(over, None), set()
    )


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    server = Memory()
    server.objects[NODE] = [node("a")]
    server.objects[ELASTIC_JOB] = [elastic("j")]
    news = threading.Event()

    def follow(
        api: Any, kind: ResourceKind, namespace: str, labels: str, stopped: threading.Event
    ) -> Iterator[list[ObjectChange]]:
        """Yields one new object when the test says so."""
        while kind == ELASTIC_JOB and not stopped.wait(0.01):
            if news.is_set():
                news.clear()
                yield [ObjectChange(None, server.objects[ELASTIC_JOB][-1])]

    monkeypatch.setattr(serving, "follow_changes", follow)
    monkeypatch.setattr(serving, "RETRY_S", 0.05)
    server.news = news  # type: ignore[attr-defined]
    return server


def test_it_decides_at_once_goes_on_after_an_error_and_when_a_job_comes(memory: Memory) -> None:
    cluster = NamespaceCluster(memory, "here", SLOT, lambda: True)  # type: ignore[arg-type]
    errors = [ApiUnavailable("away")]
    real = cluster.snapshot

    def snapshot(now: float) -> Any:
        if errors:
            raise errors.pop()
        return real(now)

    cluster.snapshot = snapshot  # type: ignore[method-assign]
    server = serving.NamespaceSchedulerServer(GoodputPolicy(), cluster, 0.0, SchedulerHealth())
    thread = threading.Thread(target=server.run)
    thread.start()
    until("the job has all workers", lambda: spec(memory, "j")[0] == 4)

    memory.objects[ELASTIC_JOB].append(elastic("k"))
    memory.news.set()  # type: ignore[attr-defined]
    until("it has fewer", lambda: spec(memory, "j")[0] < 4)
    server.stop()
    thread.join(20)

    assert not thread.is_alive() and not errors
