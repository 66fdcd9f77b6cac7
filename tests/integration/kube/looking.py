"""What an ElasticJob says, and what belongs to it."""

from __future__ import annotations

from typing import Any

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from tests.waiting import until

OWNED = (
    kinds.CONFIG_MAP,
    kinds.SECRET,
    kinds.SERVICE,
    kinds.SERVICE_ACCOUNT,
    kinds.ROLE,
    kinds.ROLE_BINDING,
    kinds.NETWORK_POLICY,
    kinds.STATEFUL_SET,
)


def read(api: Api, name: str = "mnist") -> dict[str, Any]:
    found = api.get(kinds.ELASTIC_JOB, name)
    assert found is not None
    return found


def phase(api: Api, name: str = "mnist") -> str:
    return str(read(api, name).get("status", {}).get("phase", ""))


def condition(api: Api, type: str, name: str = "mnist") -> dict[str, Any]:
    conditions = read(api, name).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == type), {})


def events(api: Api, reason: str) -> list[str]:
    return [one["message"] for one in api.list(kinds.EVENT)[0] if one["reason"] == reason]


def owned(api: Api, uid: str) -> dict[str, dict[str, Any]]:
    """All that belongs to the ElasticJob, by kind and name."""
    found = {}
    for kind in OWNED:
        for document in api.list(kind)[0]:
            if uid in [owner["uid"] for owner in document["metadata"].get("ownerReferences", [])]:
                found[f"{kind.kind} {document['metadata']['name']}"] = document
    return found


def replicas(api: Api) -> int:
    master = api.get(kinds.STATEFUL_SET, "mnist-master")
    assert master is not None
    return int(master["spec"]["replicas"])


def versions(found: dict[str, dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {name: (one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for name, one in found.items()}


def begun(api: Api, name: str = "mnist") -> dict[str, Any]:
    """The ElasticJob, once its master is there and its status says so."""
    until("the job has a phase", lambda: phase(api, name) == "Pending")
    return read(api, name)
