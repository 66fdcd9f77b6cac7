"""What a master publishes in the objects of its job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyExists, ApiUnavailable, NotFound
from elasticdl.kube.kinds import EVENT, ResourceKind
from elasticdl.launcher.kubernetes.manifest import Owner
from elasticdl.master.kubernetes.publisher import MIN_INTERVAL_S, JobOwners, StatusPublisher
from elasticdl.master.machine import events as ev
from elasticdl.master.runtime.loop import MasterLoop
from elasticdl.master.views.elastic_job import elastic_job_status
from elasticdl.rpc import elasticdl_pb2 as pb
from tests.unit.master.driver import START, Driver, job_spec


class RecordingApi:
    """An API that keeps what is written; `on_call` runs at the end of each call."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.names: set[str] = set()
        self.counts: dict[str, int] = {}
        self.status: dict[str, Any] | None = None
        self.patches: list[str] = []
        self.on_call: Callable[[], object] = lambda: None

    def create(self, document: dict[str, Any]) -> None:
        if document["kind"] == "Event":
            if document["metadata"]["name"] in self.names:
                raise AlreadyExists("this event")
            self.names.add(document["metadata"]["name"])
            self.events.append(f"{document['reason']}: {document['message']}")
        elif self.status is not None:
            raise AlreadyExists("its status")
        else:
            self.status = document
        self.on_call()

    def get(self, kind: ResourceKind, name: str, namespace: str) -> dict[str, Any] | None:
        return self.status

    def patch(self, kind: ResourceKind, name: str, change: dict[str, Any], namespace: str, sub: str = "") -> None:
        self.patches.append(f"{kind.kind} {name}")
        if kind == EVENT:
            if name not in self.names:
                raise NotFound(f"no {name}")
            self.counts[name] = change["count"]
            self.events[-1] = change["message"]
        self.on_call()


MASTER = Owner("apps/v1", "StatefulSet", "test-master", "12345678-9")
OWNERS = JobOwners("team", MASTER, Owner("v1", "ConfigMap", "test-spec", "98765432-1"), None)


def publish_function(driver: Driver, api: RecordingApi, owners: JobOwners = OWNERS) -> Callable[[], None]:
    publisher = StatusPublisher(cast(Api, api), job_spec(), owners)
    loop = cast(MasterLoop, SimpleNamespace(machine=driver.machine, clock=SimpleNamespace(now=lambda: START)))
    return lambda: asyncio.run(publisher.publish(loop))


def test_an_event_that_happens_during_a_write_is_published_the_next_time() -> None:
    driver, api = Driver(job_spec()), RecordingApi()
    publish = publish_function(driver, api)
    publish()
    api.events.clear()
    desired_workers = iter((4,))

    def scale_once() -> None:
        for workers in desired_workers:
            driver.do(ev.ScaleRequested(workers, 0))

    driver.do(ev.ScaleRequested(3, 0))
    api.on_call = scale_once
    publish()
    publish()

    assert api.events == [
        "Scaled: from 2 to 3 workers",
        "WorkerLaunched: worker-2",
        "Scaled: from 3 to 4 workers",
        "WorkerLaunched: worker-3",
    ]


def test_nothing_is_written_while_nothing_changes() -> None:
    driver, api = Driver(job_spec()), RecordingApi()
    publish = publish_function(
        driver, api, OWNERS._replace(resource=Owner("elasticdl.org/v1", "ElasticJob", "test", "1234"))
    )
    publish()
    publish()
    first_patches = list(api.patches)
    driver.do(ev.ScaleRequested(3, 0))
    publish()

    assert first_patches == ["ConfigMap job-status", "ElasticJob test"]
    assert api.patches == first_patches * 2


def test_a_failed_write_is_repeated_the_next_time() -> None:
    driver, api = Driver(job_spec()), RecordingApi()
    publish = publish_function(driver, api)
    errors = iter([ApiUnavailable("no answer")])

    def fail_once() -> None:
        for error in errors:
            raise error

    api.on_call = fail_once
    publish()
    publish()

    assert api.patches == ["ConfigMap job-status"] * 2


def test_a_job_of_many_workers_is_published_less_often_and_a_small_one_every_second() -> None:
    intervals = []
    for workers in (2, 200):
        spec = job_spec(workers=workers, max_workers=workers, ranks=workers)
        driver, api = Driver(spec), RecordingApi()
        publisher = StatusPublisher(cast(Api, api), spec, OWNERS)
        loop = cast(MasterLoop, SimpleNamespace(machine=driver.machine, clock=SimpleNamespace(now=lambda: START)))
        asyncio.run(publisher.publish(loop))
        intervals.append(publisher.interval_s)

    assert intervals[0] == MIN_INTERVAL_S
    assert 2 * MIN_INTERVAL_S < intervals[1] < 20 * MIN_INTERVAL_S


def test_a_restarted_master_does_not_repeat_events() -> None:
    driver, api = Driver(job_spec()), RecordingApi()
    publish_function(driver, api)()
    assert api.events
    api.events.clear()
    driver.machine.state.add_log_entry(START + 1, "master-restarted")
    publish_function(driver, api)()
    assert api.events == ["MasterRestarted: master-restarted"]


def test_evaluations_are_one_event_with_a_count() -> None:
    driver, api = Driver(job_spec()), RecordingApi()
    publish = publish_function(driver, api)
    publish()
    api.events.clear()
    for accuracy in ("0.7", "0.8", "0.9"):
        driver.machine.state.add_log_entry(START, "evaluation", reason=f"accuracy {accuracy}")
        publish()

    assert api.events == ["accuracy 0.9"]
    assert api.counts == {"test-master.12345678.evaluation": 3}


def test_the_published_metric_is_the_first_of_the_model_or_else_the_loss() -> None:
    metrics_shown = [elastic_job_status(pb.JobStatus(metrics=metrics), None)["metric"] for metrics in METRICS]
    assert metrics_shown == ["accuracy 0.91", "loss 0.25", ""]


METRICS: list[dict[str, float]] = [{"loss": 0.25, "recall": 0.5, "accuracy": 0.91}, {"loss": 0.25}, {}]
