"""The finalizer of an ElasticJob: the resource stays until the pods of the job have ended.

So `kubectl delete` returns when the machines are free, and a new job of the same name meets no pods of the old one. A
job that is over has no finalizer, so that it can be deleted without the operator.
"""

from __future__ import annotations

from typing import Any

from elasticdl.errors import TransientError
from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.kube.errors import Conflict
from elasticdl.launcher.kubernetes import naming, pod_status, status_map

Document = dict[str, Any]

FINALIZER = "elasticdl.org/pods"


class StillTerminating(TransientError):
    """The master is changing, or pods are ending: reconcile again later."""


def is_being_deleted(resource: Document) -> bool:
    return "deletionTimestamp" in resource["metadata"]


def add_finalizer(api: Api, resource: Document) -> Document:
    """Adds the finalizer, before the job gets its first pod. Returns the changed resource."""
    return _set_finalizer(api, resource, is_present=True)


def remove_finalizer(api: Api, resource: Document) -> Document:
    return _set_finalizer(api, resource, is_present=False)


def finalize(api: Api, resource: Document, owners: set[str]) -> None:
    """Deletes the pods that `owners` own. Removes the finalizer when none is left, else raises StillTerminating.

    The master's pod is deleted first, through its StatefulSet: it releases the other pods before it ends, and would
    replace them as long as it lives.
    """
    name, namespace = resource["metadata"]["name"], resource["metadata"]["namespace"]
    if FINALIZER not in _finalizers(resource):
        return
    if owners:
        status_map.retire_master(api, name, namespace)
    pods = api.list(kinds.POD, namespace, f"{naming.JOB_LABEL}={name}")[0]
    living = [
        pod
        for pod in pods
        if _owner_uids(pod) & owners and not isinstance(pod_status.read_pod_status(pod), pod_status.PodExited)
    ]
    if any(pod["metadata"]["labels"].get(naming.ROLE_LABEL) == naming.MASTER for pod in living):
        raise StillTerminating("the pod of the master is still terminating")
    for pod in living:
        metadata = pod["metadata"]
        if "deletionTimestamp" not in metadata:
            api.delete(kinds.POD, metadata["name"], namespace, uid=metadata["uid"])
    if living:
        raise StillTerminating(f"{len(living)} pods of the job are still terminating")
    remove_finalizer(api, resource)


def _owner_uids(document: Document) -> set[str]:
    return {owner["uid"] for owner in document["metadata"].get("ownerReferences", [])}


def _finalizers(resource: Document) -> list[str]:
    return list(resource["metadata"].get("finalizers") or [])


def _set_finalizer(api: Api, resource: Document, *, is_present: bool) -> Document:
    """The patch names the version that was read, because it replaces the whole list, with the finalizers of others."""
    while (FINALIZER in _finalizers(resource)) != is_present:
        metadata = resource["metadata"]
        finalizers = [finalizer for finalizer in _finalizers(resource) if finalizer != FINALIZER]
        finalizers += [FINALIZER] if is_present else []
        change = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": finalizers}}
        try:
            return api.patch(kinds.ELASTIC_JOB, metadata["name"], change, metadata["namespace"])
        except Conflict as exc:
            current = api.get(kinds.ELASTIC_JOB, metadata["name"], metadata["namespace"])
            if current is None or current["metadata"]["uid"] != metadata["uid"]:
                raise StillTerminating("the resource was deleted") from exc
            resource = current
    return resource
