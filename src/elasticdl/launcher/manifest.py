"""Every object of a job on Kubernetes, made purely from its JobSpec: plain dictionaries, nothing is sent.

The order of use: `master_job`, which is suspended; `belongings`, with that Job (or the ElasticJob that owns it) as
their owner; then the Job is let go. The master makes a `replica_pod` for each worker and ps.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

from elasticdl.launcher import access
from elasticdl.launcher.adjusting import adjusted
from elasticdl.launcher.naming import (
    MASTER,
    MASTER_PORT,
    METRICS_PORT,
    Document,
    Owner,
    labels,
    master_name,
    metadata,
    pod_name,
    selector,
)
from elasticdl.launcher.pod_template import pod_spec
from elasticdl.launcher.resources import is_high, memory_of
from elasticdl.spec import JobSpec

if TYPE_CHECKING:
    from elasticdl.launcher.certificates import JobSecrets

__all__ = [
    "MASTER_PORT",
    "METRICS_PORT",
    "Document",
    "Owner",
    "belongings",
    "is_high",
    "labels",
    "master_job",
    "memory_of",
    "replica_pod",
    "selector",
]

SPEC_KEY = "spec.json"
BACKOFF_LIMIT = 100
# How a pod of the master may end, and what its Job makes of it; the first rule that fits counts. A pod that was taken
# away is replaced whatever its exit code: the next master reads in the journal whether the job had ended.
_FAILURES: list[Document] = [
    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    {"action": "FailJob", "onExitCodes": {"containerName": MASTER, "operator": "In", "values": [1, 2, 130]}},
    {"action": "Ignore", "onExitCodes": {"containerName": MASTER, "operator": "In", "values": [137, 143]}},
]


def belongings(spec: JobSpec, secrets: JobSecrets, owner: Owner) -> list[Document]:
    """All that a job has beside its pods."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(spec, f"{spec.name}-spec", owner=owner),
            "immutable": True,  # a job is fixed; and no kubelet has to watch it
            "data": {SPEC_KEY: spec.model_dump_json(indent=2)},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata(spec, f"{spec.name}-secret", owner=owner),
            "immutable": True,
            "type": "Opaque",
            "stringData": secrets.files(),
        },
        adjusted(access.service(spec, owner), spec, "service"),
        *access.service_accounts(spec, owner),
        *access.rights(spec, owner),
        *access.network_policies(spec, owner),
    ]


def master_job(spec: JobSpec, owner: Owner | None) -> Document:
    """The master: one pod at a time, replaced until it says that the job is over. Created suspended."""
    name = master_name(spec)
    template = {
        "metadata": {"name": name, "labels": labels(spec, MASTER, MASTER)},
        "spec": pod_spec(spec, MASTER, MASTER, owner=owner),
    }
    template = adjusted(template, spec, "pod", "master_pod")
    del template["metadata"]["name"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(spec, name, MASTER, owner=owner, queue=True),
        "spec": {
            "suspend": True,
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": BACKOFF_LIMIT,
            "podReplacementPolicy": "Failed",  # never two: the next comes when the last is gone
            "podFailurePolicy": {"rules": deepcopy(_FAILURES)},
            "template": template,
        },
    }


def replica_pod(
    spec: JobSpec,
    replica: str,
    role: str,
    owner: Owner,
    *,
    raises: int = 0,
    is_high: bool | None = None,
    environ: Mapping[str, str] | None = None,
) -> Document:
    """The pod of a worker or a ps. `raises`: how often pods of this role ran out of memory."""
    pod: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(spec, pod_name(spec, replica), role, replica=replica, owner=owner, queue=True),
        "spec": pod_spec(spec, role, replica, raises=raises, is_high=is_high, environ=environ),
    }
    return adjusted(pod, spec, "pod", f"{role}_pod")
