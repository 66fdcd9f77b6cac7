"""Reads an ElasticJob and the objects that belong to it."""

from __future__ import annotations

from typing import Any

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from tests.waiting import until

OWNED_KINDS = (
    kinds.CONFIG_MAP,
    kinds.SECRET,
    kinds.SERVICE,
    kinds.SERVICE_ACCOUNT,
    kinds.ROLE,
    kinds.ROLE_BINDING,
    kinds.NETWORK_POLICY,
    kinds.STATEFUL_SET,
)


def read_job(api: Api, name: str = "mnist") -> dict[str, Any]:
    resource = api.get(kinds.ELASTIC_JOB, name)
    assert resource is not None
    return resource


def phase(api: Api, name: str = "mnist") -> str:
    return str(read_job(api, name).get("status", {}).get("phase", ""))


def condition(api: Api, type: str, name: str = "mnist") -> dict[str, Any]:
    conditions = read_job(api, name).get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == type), {})


def event_messages(api: Api, reason: str) -> list[str]:
    return [event["message"] for event in api.list(kinds.EVENT)[0] if event["reason"] == reason]


def owned_objects(api: Api, uid: str) -> dict[str, dict[str, Any]]:
    """All objects that belong to the ElasticJob, by kind and name."""
    objects = {}
    for kind in OWNED_KINDS:
        for document in api.list(kind)[0]:
            if uid in [owner["uid"] for owner in document["metadata"].get("ownerReferences", [])]:
                objects[f"{kind.kind} {document['metadata']['name']}"] = document
    return objects


def master_replicas(api: Api) -> int:
    master = api.get(kinds.STATEFUL_SET, "mnist-master")
    assert master is not None
    return int(master["spec"]["replicas"])


def object_versions(objects: dict[str, dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {
        name: (document["metadata"]["uid"], document["metadata"]["resourceVersion"])
        for name, document in objects.items()
    }


def wait_until_pending(api: Api, name: str = "mnist") -> dict[str, Any]:
    """The ElasticJob, once its master exists and its status is written."""
    until("the job has a phase", lambda: phase(api, name) == "Pending")
    return read_job(api, name)
