"""Pods that must go: of a job that is suspended, of one that is deleted. Kubelets are played by the test."""

from __future__ import annotations

import signal
from typing import Any

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.launcher.kubernetes import manifest, naming, status_map
from elasticdl.operator.finalizer import FINALIZER
from elasticdl.spec.load import resolve_elastic_job
from tests.integration.kube.conftest import Start
from tests.integration.kube.elastic_job import resource
from tests.integration.kube.looking import begun, phase, read, replicas
from tests.waiting import until


def on_a_node(api: Api, pod: dict[str, Any]) -> None:
    """Bound: its deletion waits for the kubelet, which is the test."""
    pod["spec"].pop("priorityClassName", None)
    api.create(pod | {"spec": pod["spec"] | {"nodeName": "node-1"}})


def is_ending(api: Api, name: str) -> bool:
    return "deletionTimestamp" in (api.get(kinds.POD, name) or {"metadata": {}})["metadata"]


def test_a_suspended_job_gives_its_workers_back_when_its_master_is_gone(start: Start, api: Api) -> None:
    operator = start()
    api.create(resource("mnist"))
    job = resolve_elastic_job(begun(api))
    owner = naming.Owner.from_object(read(api))
    master = manifest.replica_pod(job, "master-0", "master", owner)
    worker = manifest.replica_pod(job, "worker-0", "worker", owner)
    other = manifest.replica_pod(resolve_elastic_job(resource("other", api.namespace)), "worker-0", "worker", owner)
    for pod in (master, worker, other):
        pod["spec"].pop("priorityClassName", None)
        api.create(pod)

    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"suspend": True}})
    until("the master is suspended", lambda: replicas(api) == 0)
    until("the operator waits", lambda: 'reconciled_total{outcome="retried"}' in operator.figures())
    while_ending = api.get(kinds.POD, "mnist-worker-0")
    api.delete(kinds.POD, "mnist-master-0", grace_s=0)
    until("the worker goes", lambda: not api.get(kinds.POD, "mnist-worker-0"))
    until("the status says so", lambda: phase(api) == "Suspended")
    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"suspend": False}})
    until("it goes on", lambda: phase(api) == "Pending")

    assert while_ending and "deletionTimestamp" not in while_ending["metadata"]
    assert api.get(kinds.POD, "other-worker-0")
    assert replicas(api) == 1


def test_a_deleted_job_is_there_until_its_pods_are_gone(start: Start, api: Api) -> None:
    operator = start()
    api.create(resource("mnist"))
    job = resolve_elastic_job(begun(api))
    spec = api.get(kinds.CONFIG_MAP, "mnist-spec")
    assert spec
    on_a_node(api, manifest.replica_pod(job, "worker-0", "worker", naming.Owner.from_object(spec)))
    stranger = naming.Owner("v1", "ConfigMap", "another", "00000000-0000-0000-0000-00000000000b")
    on_a_node(api, manifest.replica_pod(job, "worker-9", "worker", stranger))

    api.delete(kinds.ELASTIC_JOB, "mnist")
    until("the worker is told to go", lambda: is_ending(api, "mnist-worker-0"))
    until("the operator waits", lambda: 'reconciled_total{outcome="retried"}' in operator.figures())
    assert read(api)["metadata"]["finalizers"] == [FINALIZER]
    assert replicas(api) == 0
    api.delete(kinds.POD, "mnist-worker-0", grace_s=0)
    until("the job is gone", lambda: api.get(kinds.ELASTIC_JOB, "mnist") is None)

    assert not is_ending(api, "mnist-worker-9")  # somebody else's


def test_a_deletion_that_began_without_an_operator_is_finished_by_the_next(start: Start, api: Api) -> None:
    first = start()
    api.create(resource("mnist"))
    begun(api)
    first.end(signal.SIGKILL)
    api.delete(kinds.ELASTIC_JOB, "mnist")
    assert read(api)["metadata"]["deletionTimestamp"]

    start()

    until("the job is gone", lambda: api.get(kinds.ELASTIC_JOB, "mnist") is None)


def test_a_job_that_is_over_needs_no_operator_to_go(start: Start, api: Api) -> None:
    operator = start()
    api.create(resource("mnist"))
    begun(api)
    status_map.write_refusal(api, "mnist", api.namespace, "no such model", 2)
    until("the job failed", lambda: phase(api) == "Failed")
    until("nothing holds it", lambda: not read(api)["metadata"].get("finalizers"))
    operator.end(signal.SIGKILL)

    api.delete(kinds.ELASTIC_JOB, "mnist")

    assert api.get(kinds.ELASTIC_JOB, "mnist") is None
