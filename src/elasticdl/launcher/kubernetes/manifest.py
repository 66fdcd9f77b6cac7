"""Every object of a job on Kubernetes, built from its JobSpec as plain dictionaries; nothing is sent.

A submission creates `master_stateful_set` with no pod; then `job_objects`, owned by that StatefulSet (or by the
ElasticJob that owns it); then it scales the set to one. The master creates a `replica_pod` for each worker and ps,
owned by the job's ConfigMap: deleting the set deletes them all.
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
# Pods of workers and ps have local storage and no controller that recreates them: without this annotation an
# autoscaler would never remove their node.
_SAFE_TO_EVICT = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}


def job_objects(spec: JobSpec, secrets: JobSecrets, owner: Owner) -> list[Document]:
    """All objects of a job but its StatefulSet and its pods."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": object_metadata(spec, spec_name(spec), owner=owner),
            "immutable": True,  # a job's description never changes, and no kubelet has to watch it
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
        apply_overrides(access.master_service(spec, owner), spec, "service"),
        *access.service_accounts(spec, owner),
        *access.role_and_binding(spec, owner),
        *access.network_policies(spec, owner),
    ]


def master_stateful_set(spec: JobSpec, owner: Owner | None) -> Document:
    """The StatefulSet of the master, with no pod yet. Its pod is replaced until the master scales the set to zero.

    Only its number of replicas ever changes, so there is no roll-out and no revision to keep.
    """
    name = master_name(spec)
    template = {
        "metadata": {"name": name, "labels": object_labels(spec, MASTER, MASTER)},
        "spec": pod_spec(spec, MASTER, MASTER),
    }
    template = apply_overrides(template, spec, "pod", "master_pod")
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
    memory_raises: int = 0,
    is_high: bool | None = None,
    environ: Mapping[str, str] | None = None,
    avoid_nodes: Sequence[str] = (),
) -> Document:
    """The pod of a worker or a ps.

    `memory_raises` is how often the memory of this role was raised; `avoid_nodes` are used only if no other node fits.
    """
    metadata = object_metadata(spec, pod_name(spec, replica), role, replica=replica, owner=owner, queue=True)
    template = pod_spec(
        spec, role, replica, memory_raises=memory_raises, is_high=is_high, environ=environ, avoid_nodes=avoid_nodes
    )
    pod: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | {"annotations": dict(_SAFE_TO_EVICT)},
        "spec": template,
    }
    return apply_overrides(pod, spec, "pod", f"{role}_pod")


def apply_overrides(document: Document, spec: JobSpec, *names: str) -> Document:
    """`document` with the overrides of these names merged in order. Its name, labels and owner stay."""
    overrides = [cluster_spec(spec).overrides[name] for name in names if name in cluster_spec(spec).overrides]
    result = document
    for override in overrides:
        result = merge_documents(result, override)
    if overrides:
        metadata = result.setdefault("metadata", {})
        ours = document["metadata"]
        metadata |= {key: ours[key] for key in ("name", "namespace", "ownerReferences") if key in ours}
        metadata["labels"] = metadata.get("labels", {}) | ours["labels"]
    return result


def merge_documents(old: Document, change: Document) -> Document:
    """Merge mappings by key and lists of named items by name; replace everything else. null removes a key."""
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
    merged = [merge_documents(item, changes.pop(item[key], {})) for item in old]
    return merged + [deepcopy(item) for item in changes.values()]


def _list_key(old: Any, new: Any) -> str:
    """The key that identifies the items: the path for mounts (a volume may be mounted twice), otherwise the name."""
    if not isinstance(old, list) or not isinstance(new, list) or not old:
        return ""
    for key in ("mountPath", "name"):
        if all(isinstance(item, dict) and key in item for item in (*old, *new)):
            return key
    return ""
