"""The end of a master that is a pod: first its result is written down, then it gives its pod back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticdl.errors import SpecError, TransientError
from elasticdl.kube.api import Api
from elasticdl.kube.kinds import CONFIG_MAP, STATEFUL_SET
from elasticdl.launcher.kubernetes import job_secrets, manifest
from elasticdl.launcher.kubernetes.manifest import Owner
from elasticdl.master.kubernetes import backend
from elasticdl.master.machine import events as ev
from elasticdl.master.runtime.loop import MasterLoop
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
    monkeypatch.setattr(backend, "DELETION_WAIT_S", 0.0)
    return made


@pytest.fixture
def spec(api: FakeApi) -> JobSpec:
    cluster = ClusterSpec.model_validate({"image": "i", "namespace": "default", "tls": False})
    spec = job_spec().model_copy(update={"cluster": cluster})
    master = api.create(manifest.master_stateful_set(spec, None))
    for document in manifest.job_objects(spec, job_secrets.create_secrets(spec), Owner.from_object(master)):
        api.create(document)
    api.patch(STATEFUL_SET, f"{spec.name}-master", {"spec": {"replicas": 1}})
    return spec


def stopped(spec: JobSpec) -> MasterLoop:
    driver = Driver(spec)
    driver.do(ev.StopRequested(at_once=True, reason="enough"))
    assert driver.phase == "stopped"
    return cast(MasterLoop, SimpleNamespace(machine=driver.machine, clock=Clock()))


def held(api: FakeApi, spec: JobSpec) -> dict[str, Any]:
    return api.objects[CONFIG_MAP, "default", f"{spec.name}-status"]


def test_the_result_comes_first_then_the_pod_is_given_back(api: FakeApi, spec: JobSpec) -> None:
    cluster, loop = backend.KubernetesBackend.connect(spec), stopped(spec)

    asyncio.run(cluster.publish_result(loop))
    cluster.retire()

    master = api.objects[STATEFUL_SET, "default", f"{spec.name}-master"]
    result = json.loads(held(api, spec)["data"]["result.json"])
    assert (result["phase"], result["exit_code"], result["reason"]) == ("stopped", 130, "enough")
    assert held(api, spec)["metadata"]["ownerReferences"][0]["uid"] == master["metadata"]["uid"]
    assert api.calls[-1] == ("patch", f"StatefulSet {spec.name}-master/scale")
    assert master["spec"]["replicas"] == 0


def test_who_cannot_write_the_result_does_not_go(api: FakeApi, spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "backoff_delays", lambda: iter([0.0] * 1000))
    cluster, loop = backend.KubernetesBackend.connect(spec), stopped(spec)
    api.forbidden = {("patch", "configmaps")}

    with pytest.raises(TransientError, match="the next master tries again"):
        asyncio.run(cluster.publish_result(loop))

    assert api.objects[STATEFUL_SET, "default", f"{spec.name}-master"]["spec"]["replicas"] == 1


def test_events_that_cannot_be_told_hold_nobody_up(api: FakeApi, spec: JobSpec) -> None:
    api.forbidden = {("create", "events")}
    cluster = backend.KubernetesBackend.connect(spec)

    asyncio.run(cluster.publish_result(stopped(spec)))

    assert "result.json" in held(api, spec)["data"]


def test_a_master_without_its_description_has_no_place(api: FakeApi, spec: JobSpec) -> None:
    api.delete(CONFIG_MAP, f"{spec.name}-spec")

    with pytest.raises(SpecError, match="there is no ConfigMap of job"):
        backend.KubernetesBackend.connect(spec)


def test_a_volume_that_cannot_hold_the_result_is_seen_before_anybody_trains(spec: JobSpec, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    volume = {"host_path": "/x", "mount_path": str(tmp_path)}
    cluster = ClusterSpec.model_validate({"image": "i", "namespace": "default", "volumes": [volume]})

    def check(output: Path) -> None:
        backend.KubernetesBackend.connect(
            spec.model_copy(update={"cluster": cluster, "output": str(output)})
        ).check_output_places()

    check(tmp_path / "model")
    check(Path("/elsewhere/in/the/pod"))
    with pytest.raises(SpecError, match="holds other files and is not replaced"):
        check(tmp_path)
