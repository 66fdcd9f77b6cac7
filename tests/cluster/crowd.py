"""Many jobs at once: real masters, and workers on nodes that kwok simulates, whose pods have no process.

Such workers never join. Their master, which knows that their pods run, waits for them without an end, as for workers
that import for long: all it does for its pods it does as ever. One thing is set: a worker that was lost before it ever
trained is replaced after a pause (`timing.relaunch_backoff_s`, one second), which here would be all there is to
measure.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from elasticdl.kube.api import Api
from elasticdl.kube.kinds import CONFIG_MAP, ELASTIC_JOB, POD, STATEFUL_SET
from tests.cluster.kube import HOST_IMAGE, ROOT, Kube, on_this_machine

# A hundred masters on two real nodes: what they ask for must fit, what they may use must not hurt them.
_MASTER = {"requests": {"cpu": "1m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
_WORKER = {"requests": {"cpu": "1", "memory": "2Gi"}}
_FAKE = {
    "nodeSelector": {"type": "kwok"},
    "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}],
}
_REAL = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "type", "operator": "NotIn", "values": ["kwok"]}]}
]}}}}  # fmt: skip
_LABELLED = (POD, STATEFUL_SET, CONFIG_MAP)


class Crowd:
    """Jobs `crowd-0`, `crowd-1`, … of one namespace, each with `workers` workers."""

    def __init__(self, kube: Kube, api: Api, namespace: str, workers: int) -> None:
        self._kube = kube
        self._api = api
        self.namespace = namespace
        self._workers = workers

    @staticmethod
    def name(number: int) -> str:
        return f"crowd-{number}"

    def apply(self, numbers: Iterable[int]) -> None:
        items = [self.document(number) for number in numbers]
        self._kube.kubectl(
            "create", "--filename=-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        )

    def document(self, number: int) -> dict[str, Any]:
        spec = {
            "model": {"zoo": str(ROOT / "tests" / "integration"), "definition": "tiny.forward"},
            "data": {"training": "made-up", "format": "python"},
            "plan": {"epochs": 1, "global_batch_size": self._workers, "logical_ranks": self._workers},
            "workers": {"replicas": self._workers, "min": 1, "max": self._workers, "threads": 1},
            "timing": {"relaunch_backoff_s": 0.001},
            "cluster": {"image": HOST_IMAGE, "master": _MASTER, "worker": _WORKER, "overrides": _adjustments()},
        }
        metadata = {"name": self.name(number), "namespace": self.namespace}
        return {"apiVersion": "elasticdl.org/v1", "kind": "ElasticJob", "metadata": metadata, "spec": spec}

    def masters(self) -> dict[str, tuple[str, int]]:
        """The uid and the restarts of each master's pod, by name."""
        pods, _ = self._api.list(POD, self.namespace, "elasticdl.org/role=master")
        return {pod["metadata"]["name"]: (pod["metadata"]["uid"], _restarts(pod.get("status", {}))) for pod in pods}

    def has_master(self, number: int) -> bool:
        return self._api.get(STATEFUL_SET, f"{self.name(number)}-master", self.namespace) is not None

    def remaining_objects(self, number: int) -> list[str]:
        """All objects of one job, found by their labels: reading the names of thousands is slow."""
        name = self.name(number)
        names = [
            f"{kind.kind} {resource['metadata']['name']}"
            for kind in _LABELLED
            for selector in (f"elasticdl.org/job={name}", f"elasticdl.org/journal={name}")
            for resource in self._api.list(kind, self.namespace, selector)[0]
        ]
        kinds = "services,secrets,serviceaccounts,roles,rolebindings,networkpolicies"
        here = (f"--namespace={self.namespace}", f"--selector=elasticdl.org/job={name}")
        names += self._kube.kubectl("get", kinds, *here, "--output=name").split()
        return names + (["ElasticJob"] if self._api.get(ELASTIC_JOB, name, self.namespace) else [])

    def delete(self, number: int) -> None:
        self._api.delete(ELASTIC_JOB, self.name(number), self.namespace)

    def deleted_s(self, number: int, patience_s: float) -> float:
        """Deletes a job and returns the seconds until none of its objects is left."""
        began = time.monotonic()
        self.delete(number)
        while left := self.remaining_objects(number):
            assert time.monotonic() - began < patience_s, f"left of {self.name(number)}: {left}"
            time.sleep(0.1)
        return time.monotonic() - began


@contextmanager
def empty_namespace(kube: Kube, namespace: str) -> Iterator[Api]:
    """Open an empty namespace; yield a client of the API server, and delete the namespace at the end."""
    kube.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=100s")
    kube.open_namespace(namespace)
    try:
        with mock.patch.dict(os.environ, kube.environ):
            api = Api.connect()
        with api:
            yield api
    finally:
        kube.kubectl("delete", "elasticjobs", "--all", f"--namespace={namespace}", "--wait=false", check=False)
        kube.kubectl("delete", "namespace", namespace, "--timeout=300s", timeout_s=320.0)


@contextmanager
def fake_nodes(kube: Kube, count: int) -> Iterator[None]:
    """Creates `count` fake nodes until the block ends, unless some exist already."""
    if kube.get("nodes", "--selector=type=kwok")["items"]:
        yield
        return
    kube.starter("fake", str(count))
    try:
        yield
    finally:
        kube.kubectl("delete", "nodes", "--selector=type=kwok", timeout_s=300.0)


def _adjustments() -> dict[str, Any]:
    """Masters run this checkout; workers only need a fake node."""
    seen = on_this_machine()
    (container,) = seen["master_pod"]["spec"]["containers"]
    master = {"spec": {**seen["pod"]["spec"], **_REAL, "containers": [container]}}
    return {"master_pod": master, "worker_pod": {"spec": _FAKE}}


def _restarts(status: dict[str, Any]) -> int:
    return sum(int(container["restartCount"]) for container in status.get("containerStatuses", []))
