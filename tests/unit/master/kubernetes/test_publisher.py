"""What a master writes down for those who look at the objects of its job."""

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


class Written:
    """An API that keeps what it is given; `meanwhile` happens before each answer."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.names: set[str] = set()
        self.repeated: dict[str, int] = {}
        self.status: dict[str, Any] | None = None
        self.patches: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

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
        self.meanwhile()

    def get(self, kind: ResourceKind, name: str, namespace: str) -> dict[str, Any] | None:
        return self.status

    def patch(self, kind: ResourceKind, name: str, change: dict[str, Any], namespace: str, sub: str = "") -> None:
        self.patches.append(f"{kind.kind} {name}")
        if kind == EVENT:
            if name not in self.names:
                raise NotFound(f"no {name}")
            self.repeated[name] = change["count"]
            self.events[-1] = change["message"]
        self.meanwhile()


MASTER = Owner("apps/v1", "StatefulSet", "test-master", "12345678-9")
HOME = JobOwners("team", MASTER, Owner("v1", "ConfigMap", "test-spec", "98765432-1"), None)


def publishing(made: Driver, api: Written, home: JobOwners = HOME) -> Callable[[], None]:
    publisher = StatusPublisher(cast(Api, api), job_spec(), home)
    loop = cast(MasterLoop, SimpleNamespace(machine=made.machine, clock=SimpleNamespace(now=lambda: START)))
    return lambda: asyncio.run(publisher.publish(loop))


def test_what_happens_while_events_are_written_is_told_the_next_time() -> None:
    made, api = Driver(job_spec()), Written()
    publish = publishing(made, api)
    publish()
    api.events.clear()
    wishes = iter((4,))

    def scale() -> None:
        for wish in wishes:
            made.do(ev.ScaleRequested(wish, 0))

    made.do(ev.ScaleRequested(3, 0))
    api.meanwhile = scale
    publish()
    publish()

    assert api.events == [
        "Scaled: from 2 to 3 workers",
        "WorkerLaunched: worker-2",
        "Scaled: from 3 to 4 workers",
        "WorkerLaunched: worker-3",
    ]


def test_who_has_nothing_new_to_say_says_nothing() -> None:
    made, api = Driver(job_spec()), Written()
    publish = publishing(made, api, HOME._replace(resource=Owner("elasticdl.org/v1", "ElasticJob", "test", "1234")))
    publish()
    publish()
    quiet = list(api.patches)
    made.do(ev.ScaleRequested(3, 0))
    publish()

    assert quiet == ["ConfigMap job-status", "ElasticJob test"]
    assert api.patches == quiet * 2


def test_what_could_not_be_written_is_written_the_next_time() -> None:
    made, api = Driver(job_spec()), Written()
    publish = publishing(made, api)
    answers = iter([ApiUnavailable("no answer")])

    def fail() -> None:
        for answer in answers:
            raise answer

    api.meanwhile = fail
    publish()
    publish()

    assert api.patches == ["ConfigMap job-status"] * 2


def test_a_job_of_many_workers_speaks_less_often_and_a_small_one_every_second() -> None:
    paces = []
    for workers in (2, 200):
        spec = job_spec(workers=workers, most=workers, ranks=workers)
        made, api = Driver(spec), Written()
        publisher = StatusPublisher(cast(Api, api), spec, HOME)
        loop = cast(MasterLoop, SimpleNamespace(machine=made.machine, clock=SimpleNamespace(now=lambda: START)))
        asyncio.run(publisher.publish(loop))
        paces.append(publisher.interval_s)

    assert paces[0] == MIN_INTERVAL_S
    assert 2 * MIN_INTERVAL_S < paces[1] < 20 * MIN_INTERVAL_S


def test_a_master_that_came_back_does_not_tell_again() -> None:
    made, api = Driver(job_spec()), Written()
    publishing(made, api)()
    assert api.events
    api.events.clear()
    made.machine.state.add_log_entry(START + 1, "master-restarted")
    publishing(made, api)()
    assert api.events == ["MasterRestarted: master-restarted"]


def test_evaluations_are_one_event_that_counts_them() -> None:
    made, api = Driver(job_spec()), Written()
    publish = publishing(made, api)
    publish()
    api.events.clear()
    for accuracy in ("0.7", "0.8", "0.9"):
        made.machine.state.add_log_entry(START, "evaluation", reason=f"accuracy {accuracy}")
        publish()

    assert api.events == ["accuracy 0.9"]
    assert api.repeated == {"test-master.12345678.evaluation": 3}


def test_the_metric_shown_is_what_the_model_measures_itself_by() -> None:
    shown = [elastic_job_status(pb.JobStatus(metrics=metrics), None)["metric"] for metrics in METRICS]
    assert shown == ["accuracy 0.91", "loss 0.25", ""]


METRICS: list[dict[str, float]] = [{"loss": 0.25, "recall": 0.5, "accuracy": 0.91}, {"loss": 0.25}, {}]
