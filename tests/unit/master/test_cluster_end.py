"""The end of a master in a pod: it writes its result, then scales its StatefulSet to 0."""

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


class TickingClock:
    """Advances by a second with each call."""

    instant = 1000.0

    def now(self) -> float:
        self.instant += 1.0
        return self.instant


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    api = FakeApi()
    monkeypatch.setattr(Api, "connect", lambda **_: api)
    monkeypatch.setattr(backend, "DELETION_WAIT_S", 0.0)
    return api


@pytest.fixture
def spec(api: FakeApi) -> JobSpec:
    cluster = ClusterSpec.model_validate({"image": "i", "namespace": "default", "tls": False})
    spec = job_spec().model_copy(update={"cluster": cluster})
    master = api.create(manifest.master_stateful_set(spec, None))
    for document in manifest.job_objects(spec, job_secrets.create_secrets(spec), Owner.from_object(master)):
        api.create(document)
    api.patch(STATEFUL_SET, f"{spec.name}-master", {"spec": {"replicas": 1}})
    return spec


def stopped_loop(spec: JobSpec) -> MasterLoop:
    driver = Driver(spec)
    driver.do(ev.StopRequested(at_once=True, reason="enough"))
    assert driver.phase == "stopped"
    return cast(MasterLoop, SimpleNamespace(machine=driver.machine, clock=TickingClock()))


def status_map(api: FakeApi, spec: JobSpec) -> dict[str, Any]:
    return api.objects[CONFIG_MAP, "default", f"{spec.name}-status"]


def test_a_master_writes_its_result_before_it_scales_its_set_to_zero(api: FakeApi, spec: JobSpec) -> None:
    cluster, loop = backend.KubernetesBackend.connect(spec), stopped_loop(spec)

    asyncio.run(cluster.publish_result(loop))
    cluster.retire()

    master = api.objects[STATEFUL_SET, "default", f"{spec.name}-master"]
    result = json.loads(status_map(api, spec)["data"]["result.json"])
    assert (result["phase"], result["exit_code"], result["reason"]) == ("stopped", 130, "enough")
    assert status_map(api, spec)["metadata"]["ownerReferences"][0]["uid"] == master["metadata"]["uid"]
    assert api.calls[-1] == ("patch", f"StatefulSet {spec.name}-master/scale")
    assert master["spec"]["replicas"] == 0


def test_a_master_that_cannot_write_its_result_keeps_its_pod(
    api: FakeApi, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "backoff_delays", lambda: iter([0.0] * 1000))
    cluster, loop = backend.KubernetesBackend.connect(spec), stopped_loop(spec)
    api.forbidden = {("patch", "configmaps")}

    with pytest.raises(TransientError, match="the next master tries again"):
        asyncio.run(cluster.publish_result(loop))

    assert api.objects[STATEFUL_SET, "default", f"{spec.name}-master"]["spec"]["replicas"] == 1


def test_events_that_cannot_be_created_do_not_delay_the_result(api: FakeApi, spec: JobSpec) -> None:
    api.forbidden = {("create", "events")}
    cluster = backend.KubernetesBackend.connect(spec)

    asyncio.run(cluster.publish_result(stopped_loop(spec)))

    assert "result.json" in status_map(api, spec)["data"]


def test_a_master_without_the_config_map_of_its_spec_is_an_error(api: FakeApi, spec: JobSpec) -> None:
    api.delete(CONFIG_MAP, f"{spec.name}-spec")

    with pytest.raises(SpecError, match="namespace default has no ConfigMap of job"):
        backend.KubernetesBackend.connect(spec)


def test_a_volume_that_cannot_hold_the_output_is_an_error_before_training(spec: JobSpec, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    volume = {"host_path": "/x", "mount_path": str(tmp_path)}
    cluster = ClusterSpec.model_validate({"image": "i", "namespace": "default", "volumes": [volume]})

    def check(output: Path) -> None:
        backend.KubernetesBackend.connect(
            spec.model_copy(update={"cluster": cluster, "output": str(output)})
        ).check_outputs()

    check(tmp_path / "model")
    check(Path("/elsewhere/in/the/pod"))
    with pytest.raises(SpecError, match="holds other files and is not replaced"):
        check(tmp_path)
