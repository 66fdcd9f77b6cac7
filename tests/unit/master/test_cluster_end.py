"""The end of a master that is a pod: first its result is written down, then it gives its pod back."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticdl.errors import SpecError, TransientError
from elasticdl.kube.api import Api
from elasticdl.kube.kinds import CONFIG_MAP, STATEFUL_SET
from elasticdl.launcher import certificates, manifest
from elasticdl.launcher.manifest import Owner
from elasticdl.master import events as ev
from elasticdl.master import pods
from elasticdl.master.loop import Loop
from elasticdl.spec import ClusterSpec, JobSpec
from tests.unit.cli.fake_api import FakeApi
from tests.unit.master.driver import Driver, job_spec


class Clock:
    """Goes on by a second each time it is asked."""

    at = 1000.0

    def now(self) -> float:
        self.at += 1.0
        return self.at


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    made = FakeApi()
    monkeypatch.setattr(Api, "connect", lambda **_: made)
    monkeypatch.setattr(pods, "LEAVE_S", 0.0)
    return made


@pytest.fixture
def spec(api: FakeApi) -> JobSpec:
    cluster = ClusterSpec.model_validate({"image": "i", "namespace": "default", "tls": False})
    spec = job_spec().model_copy(update={"cluster": cluster})
    master = api.create(manifest.master_set(spec, None))
    for document in manifest.belongings(spec, certificates.make(spec), Owner.of(master)):
        api.create(document)
    api.patch(STATEFUL_SET, f"{spec.name}-master", {"spec": {"replicas": 1}})
    return spec


def stopped(spec: JobSpec) -> Loop:
    driver = Driver(spec)
    driver.do(ev.StopAsked(at_once=True, reason="enough"))
    assert driver.phase == "stopped"
    return cast(Loop, SimpleNamespace(state=driver.state, clock=Clock()))


def held(api: FakeApi, spec: JobSpec) -> dict[str, Any]:
    return api.objects[CONFIG_MAP, "default", f"{spec.name}-status"]


def test_the_result_comes_first_then_the_pod_is_given_back(api: FakeApi, spec: JobSpec) -> None:
    cluster, loop = pods.Cluster(spec), stopped(spec)

    asyncio.run(cluster.close(loop))
    cluster.leave()

    master = api.objects[STATEFUL_SET, "default", f"{spec.name}-master"]
    result = json.loads(held(api, spec)["data"]["result.json"])
    assert (result["phase"], result["exit_code"], result["reason"]) == ("stopped", 130, "enough")
    assert held(api, spec)["metadata"]["ownerReferences"][0]["uid"] == master["metadata"]["uid"]
    assert api.calls[-1] == ("patch", f"StatefulSet {spec.name}-master/scale")
    assert master["spec"]["replicas"] == 0


def test_who_cannot_write_the_result_does_not_go(api: FakeApi, spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "pauses", lambda: iter([0.0] * 1000))
    cluster, loop = pods.Cluster(spec), stopped(spec)
    api.forbidden = {("patch", "configmaps")}

    with pytest.raises(TransientError, match="the next master tries again"):
        asyncio.run(cluster.close(loop))

    assert api.objects[STATEFUL_SET, "default", f"{spec.name}-master"]["spec"]["replicas"] == 1


def test_events_that_cannot_be_told_hold_nobody_up(api: FakeApi, spec: JobSpec) -> None:
    api.forbidden = {("create", "events")}
    cluster = pods.Cluster(spec)

    asyncio.run(cluster.close(stopped(spec)))

    assert "result.json" in held(api, spec)["data"]


def test_a_master_without_its_description_has_no_place(api: FakeApi, spec: JobSpec) -> None:
    api.delete(CONFIG_MAP, f"{spec.name}-spec")

    with pytest.raises(SpecError, match="there is no ConfigMap of job"):
        pods.Cluster(spec)
