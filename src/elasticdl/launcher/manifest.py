"""Every object of a job on Kubernetes, made purely from its JobSpec: plain dictionaries, nothing is sent.

The order of use: `master_set`, which has no pod yet; `belongings`, with that StatefulSet (or the ElasticJob that owns
it) as their owner; then the set is let go: scaled to one. The master makes a `replica_pod` for each worker and ps,
whose owner is the ConfigMap among the belongings: what is deleted with the set takes them along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from elasticdl.launcher import access
from elasticdl.launcher.adjusting import adjusted
from elasticdl.launcher.naming import (
    MASTER,
    MASTER_PORT,
    METRICS_PORT,
    Document,
    Owner,
    chosen,
    labels,
    master_name,
    metadata,
    pod_name,
    selector,
    spec_name,
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
    "master_set",
    "memory_of",
    "replica_pod",
    "selector",
]

SPEC_KEY = "spec.json"
# Pods of workers and ps have local storage and nobody who makes them again by a template: without this an autoscaler
# would keep their node for them.
_MOVABLE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}


def belongings(spec: JobSpec, secrets: JobSecrets, owner: Owner) -> list[Document]:
    """All that a job has beside its pods."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(spec, spec_name(spec), owner=owner),
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


def master_set(spec: JobSpec, owner: Owner | None) -> Document:
    """The master: one pod at a time, at once replaced, until it scales its set to nothing. Created with no pod.

    Nothing of it is ever changed but its number of pods, so there is no roll-out and no revision to keep.
    """
    name = master_name(spec)
    template = {
        "metadata": {"name": name, "labels": labels(spec, MASTER, MASTER)},
        "spec": pod_spec(spec, MASTER, MASTER),
    }
    template = adjusted(template, spec, "pod", "master_pod")
    del template["metadata"]["name"]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(spec, name, MASTER, owner=owner, queue=True),
        "spec": {
            "replicas": 0,
            "serviceName": name,
            "selector": {"matchLabels": chosen(spec, MASTER)},
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 0,
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
    shunned: Sequence[str] = (),
) -> Document:
    """The pod of a worker or a ps. `raises`: how often pods of this role ran out of memory.

    `shunned`: nodes where it goes only if no other has room.
    """
    described = metadata(spec, pod_name(spec, replica), role, replica=replica, owner=owner, queue=True)
    pod: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": described | {"annotations": dict(_MOVABLE)},
        "spec": pod_spec(spec, role, replica, raises=raises, is_high=is_high, environ=environ, shunned=shunned),
    }
    return adjusted(pod, spec, "pod", f"{role}_pod")
