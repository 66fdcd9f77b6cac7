"""An ElasticJob for tests, and its definition."""

from __future__ import annotations

from typing import Any

from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyExists, NotFound
from elasticdl.kube.kinds import ELASTIC_JOB
from elasticdl.operator import schema
from tests.waiting import until


def install(api: Api) -> None:
    """Installs the definition and waits until it is served."""
    try:
        api.create(schema.crd_document())
    except AlreadyExists:
        return

    def is_served() -> bool:
        try:
            return api.list(ELASTIC_JOB) is not None
        except NotFound:
            return False

    until("ElasticJobs are served", is_served)


def resource(name: str, namespace: str = "", **spec: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "model": {
            "zoo": "/zoo",
            "definition": "mnist.forward",
            "params": {"hidden": 128, "layers": [1, {"wide": True}]},
        },
        "data": {"training": "/data/train.csv"},
        "plan": {"minibatch_size": 64},
        "workers": {"replicas": 4, "min": 2, "max": 8},
        "strategy": "ParameterServerStrategy",
        "ps": {"replicas": 1},
        "cluster": {
            "image": "elasticdl:ci",
            "worker": {"requests": {"cpu": 1, "memory": "2Gi"}},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
        },
    }
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "elasticdl.org/v1", "kind": "ElasticJob", "metadata": metadata, "spec": fields | spec}
