"""An ElasticJob of Kubernetes as the job it describes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from elasticdl.spec import load
from elasticdl.spec.job import JobSpec

QUANTITIES = ("requests", "limits")


def job_of(resource: Mapping[str, Any]) -> JobSpec:
    """The job an ElasticJob describes. SpecErrors name places as they stand in the resource's spec."""
    metadata = resource["metadata"]
    document = deepcopy(dict(resource.get("spec") or {}))
    document.pop("suspend", None)
    cluster = document.get("cluster")
    if isinstance(cluster, dict):
        document["cluster"] = {**cluster, "namespace": metadata.get("namespace", "default")}
        for role in ("master", "worker", "ps"):
            _spell_quantities(cluster.get(role))
    else:
        document["cluster"] = {}  # an ElasticJob is never a job of processes: say that cluster.image is missing
    return load.resolve({**document, "name": metadata["name"]}, f"ElasticJob {metadata['name']}")


def _spell_quantities(role: object) -> None:
    """`cpu: 1` is an integer in a resource; a quantity is text."""
    for name in QUANTITIES:
        amounts = role.get(name) if isinstance(role, dict) else None
        if isinstance(amounts, dict):
            amounts.update({key: str(value) for key, value in amounts.items() if type(value) is int})
