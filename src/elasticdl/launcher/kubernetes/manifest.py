"""Every object of a job on Kubernetes, made purely from its JobSpec: plain dictionaries, nothing is sent.

The order of use: `master_set`, which has no pod yet; `belongings`, with that StatefulSet (or the ElasticJob that owns
it) as their owner; then the set is let go: scaled to one. The master makes a `replica_pod` for each worker and ps,
whose owner is the ConfigMap among the belongings: what is deleted with the set takes them along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from elasticdl.launcher.kubernetes import access
from elasticdl.launcher.kubernetes.naming import (
    MASTER,
    MASTER_PORT,
    METRICS_PORT,
    Document,
    Owner,
    cluster_spec,
    label_selector,
    master_name,
    object_labels,
    object_metadata,
    pod_name,
    selector_labels,
    spec_name,
)
from elasticdl.launcher.kubernetes.pod_template import pod_spec
from elasticdl.launcher.kubernetes.resources import is_high_priority, memory_limit
from elasticdl.spec import JobSpec

if TYPE_CHECKING:
    from elasticdl.launcher.kubernetes.job_secrets import JobSecrets


__all__ = [
    "MASTER_PORT",
    "METRICS_PORT",
    "Document",
    "Owner",
    "is_high_priority",
    "job_objects",
    "label_selector",
    "master_stateful_set",
    "memory_limit",
    "object_labels",
    "replica_pod",
]

SPEC_KEY = "spec.json"
# Pods of workers and ps have local storage and nobody who makes them again by a template: without this an autoscaler
# would keep their node for them.
_SAFE_TO_EVICT = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}


def job_objects(spec: JobSpec, secrets: JobSecrets, owner: Owner) -> list[Document]:
    """All that a job has beside its pods."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": object_metadata(spec, spec_name(spec), owner=owner),
            "immutable": True,  # a job is fixed; and no kubelet has to watch it
            "data": {SPEC_KEY: spec.model_dump_json(indent=2)},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": object_metadata(spec, f"{spec.name}-secret", owner=owner),
            "immutable": True,
            "type": "Opaque",
            "stringData": secrets.to_files(),
        },
        apply_adjustments(access.master_service(spec, owner), spec, "service"),
        *access.service_accounts(spec, owner),
        *access.role_and_binding(spec, owner),
        *access.network_policies(spec, owner),
    ]


def master_stateful_set(spec: JobSpec, owner: Owner | None) -> Document:
    """The master: one pod at a time, at once replaced, until it scales its set to nothing. Created with no pod.

    Nothing of it is ever changed but its number of pods, so there is no roll-out and no revision to keep.
    """
    name = master_name(spec)
    template = {
        "metadata": {"name": name, "labels": object_labels(spec, MASTER, MASTER)},
        "spec": pod_spec(spec, MASTER, MASTER),
    }
    template = apply_adjustments(template, spec, "pod", "master_pod")
    del template["metadata"]["name"]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": object_metadata(spec, name, MASTER, owner=owner, queue=True),
        "spec": {
            "replicas": 0,
            "serviceName": name,
            "selector": {"matchLabels": selector_labels(spec, MASTER)},
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
    described = object_metadata(spec, pod_name(spec, replica), role, replica=replica, owner=owner, queue=True)
    pod: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": described | {"annotations": dict(_SAFE_TO_EVICT)},
        "spec": pod_spec(spec, role, replica, raises=raises, is_high=is_high, environ=environ, shunned=shunned),
    }
    return apply_adjustments(pod, spec, "pod", f"{role}_pod")


def apply_adjustments(document: Document, spec: JobSpec, *names: str) -> Document:
    """`document` with the changes under these names, in order. What makes it this job's own stays."""
    changes = [cluster_spec(spec).overrides[name] for name in names if name in cluster_spec(spec).overrides]
    result = document
    for change in changes:
        result = merge_documents(result, change)
    if changes:
        metadata = result.setdefault("metadata", {})
        ours = document["metadata"]
        metadata |= {key: ours[key] for key in ("name", "namespace", "ownerReferences") if key in ours}
        metadata["labels"] = metadata.get("labels", {}) | ours["labels"]
    return result


def merge_documents(old: Document, change: Document) -> Document:
    """Mappings are merged, lists of named things by name, all else is replaced; null takes a key away."""
    result = deepcopy(old)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_values(result[key], value) if key in result else deepcopy(value)
    return result


def _merge_values(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return merge_documents(old, new)
    key = _list_key(old, new)
    if not key:
        return deepcopy(new)
    changes = {item[key]: item for item in new}
    kept = [merge_documents(item, changes.pop(item[key], {})) for item in old]
    return kept + [deepcopy(item) for item in changes.values()]


def _list_key(old: Any, new: Any) -> str:
    """What tells the items of both lists apart: a volume may be mounted twice, so mounts go by their place."""
    if not isinstance(old, list) or not isinstance(new, list) or not old:
        return ""
    for key in ("mountPath", "name"):
        if all(isinstance(item, dict) and key in item for item in (*old, *new)):
            return key
    return ""
