"""The pods of suspended and deleted jobs. The tests act as kubelets."""

from __future__ import annotations

import signal
from typing import Any

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.launcher.kubernetes import manifest, naming, status_map
from elasticdl.operator.finalizer import FINALIZER
from elasticdl.spec.load import resolve_elastic_job
from tests.integration.kube.conftest import StartOperator
from tests.integration.kube.elastic_job import resource
from tests.integration.kube.job_reader import master_replicas, phase, read_job, wait_until_pending
from tests.waiting import until


def create_on_node(api: Api, pod: dict[str, Any]) -> None:
    """Creates a pod on a node: its deletion waits for the kubelet, which is the test."""
    pod["spec"].pop("priorityClassName", None)
    api.create(pod | {"spec": pod["spec"] | {"nodeName": "node-1"}})


def is_terminating(api: Api, name: str) -> bool:
    return "deletionTimestamp" in (api.get(kinds.POD, name) or {"metadata": {}})["metadata"]


def test_the_workers_of_a_suspended_job_are_deleted_after_its_master(start: StartOperator, api: Api) -> None:
    operator = start()
    api.create(resource("mnist"))
    job = resolve_elastic_job(wait_until_pending(api))
    owner = naming.Owner.from_object(read_job(api))
    master = manifest.replica_pod(job, "master-0", "master", owner)
    worker = manifest.replica_pod(job, "worker-0", "worker", owner)
    stranger = manifest.replica_pod(resolve_elastic_job(resource("other", api.namespace)), "worker-0", "worker", owner)
    for pod in (master, worker, stranger):
        pod["spec"].pop("priorityClassName", None)
        api.create(pod)

    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"suspend": True}})
    until("the master is suspended", lambda: master_replicas(api) == 0)
    until("the operator waits", lambda: 'reconciled_total{outcome="retried"}' in operator.read_metrics())
    worker_before = api.get(kinds.POD, "mnist-worker-0")
    api.delete(kinds.POD, "mnist-master-0", grace_s=0)
    until("the worker is deleted", lambda: not api.get(kinds.POD, "mnist-worker-0"))
    until("the status is Suspended", lambda: phase(api) == "Suspended")
    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"suspend": False}})
    until("the job resumes", lambda: phase(api) == "Pending")

    assert worker_before and "deletionTimestamp" not in worker_before["metadata"]
    assert api.get(kinds.POD, "other-worker-0")
    assert master_replicas(api) == 1


def test_a_deleted_job_exists_until_its_pods_have_ended(start: StartOperator, api: Api) -> None:
    operator = start()
    api.create(resource("mnist"))
    job = resolve_elastic_job(wait_until_pending(api))
    spec = api.get(kinds.CONFIG_MAP, "mnist-spec")
    assert spec
    create_on_node(api, manifest.replica_pod(job, "worker-0", "worker", naming.Owner.from_object(spec)))
    other_owner = naming.Owner("v1", "ConfigMap", "another", "00000000-0000-0000-0000-00000000000b")
    create_on_node(api, manifest.replica_pod(job, "worker-9", "worker", other_owner))

    api.delete(kinds.ELASTIC_JOB, "mnist")
    until("the worker terminates", lambda: is_terminating(api, "mnist-worker-0"))
    until("the operator waits", lambda: 'reconciled_total{outcome="retried"}' in operator.read_metrics())
    assert read_job(api)["metadata"]["finalizers"] == [FINALIZER]
    assert master_replicas(api) == 0
    api.delete(kinds.POD, "mnist-worker-0", grace_s=0)
    until("the job is gone", lambda: api.get(kinds.ELASTIC_JOB, "mnist") is None)

    assert not is_terminating(api, "mnist-worker-9")  # it has another owner


def test_an_operator_finishes_a_deletion_that_began_without_one(start: StartOperator, api: Api) -> None:
    first = start()
    api.create(resource("mnist"))
    wait_until_pending(api)
    first.end(signal.SIGKILL)
    api.delete(kinds.ELASTIC_JOB, "mnist")
    assert read_job(api)["metadata"]["deletionTimestamp"]

    start()

    until("the job is gone", lambda: api.get(kinds.ELASTIC_JOB, "mnist") is None)


def test_a_job_that_is_over_can_be_deleted_without_an_operator(start: StartOperator, api: Api) -> None:
    operator = start()
    api.create(resource("mnist"))
    wait_until_pending(api)
    status_map.write_refusal(api, "mnist", api.namespace, "no such model", 2)
    until("the job failed", lambda: phase(api) == "Failed")
    until("it has no finalizers", lambda: not read_job(api)["metadata"].get("finalizers"))
    operator.end(signal.SIGKILL)

    api.delete(kinds.ELASTIC_JOB, "mnist")

    assert api.get(kinds.ELASTIC_JOB, "mnist") is None
