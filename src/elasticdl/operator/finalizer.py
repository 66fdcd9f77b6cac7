"""An ElasticJob goes after its pods: as long as one of them may run, a finalizer holds the resource.

So `kubectl delete`, which waits, ends when the resources of the job are free, and a new job of the same name meets no
pods of the old one. A job that is over holds nothing; the operator need not be there to delete it.
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
    """The master is about to change, or pods to go."""


def is_being_deleted(resource: Document) -> bool:
    return "deletionTimestamp" in resource["metadata"]


def add_finalizer(api: Api, resource: Document) -> Document:
    """Before the job gets its first pod. Returns the resource as it is then."""
    return _set_finalizer(api, resource, is_held=True)


def remove_finalizer(api: Api, resource: Document) -> Document:
    return _set_finalizer(api, resource, is_held=False)


def finalize(api: Api, resource: Document, owners: set[str]) -> None:
    """Delete the pods of a resource that is deleted, those of `owners`, until there are none; then hold it no more.

    The master first, by its set: it releases the others before it goes, and would replace them as long as it lives.
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
        raise StillTerminating("the pod of the master is still ending")
    for pod in living:
        metadata = pod["metadata"]
        if "deletionTimestamp" not in metadata:
            api.delete(kinds.POD, metadata["name"], namespace, uid=metadata["uid"])
    if living:
        raise StillTerminating(f"{len(living)} of its pods are still ending")
    remove_finalizer(api, resource)


def _owner_uids(document: Document) -> set[str]:
    return {one["uid"] for one in document["metadata"].get("ownerReferences", [])}


def _finalizers(resource: Document) -> list[str]:
    return list(resource["metadata"].get("finalizers") or [])


def _set_finalizer(api: Api, resource: Document, *, is_held: bool) -> Document:
    """By the version seen: the list is written whole, and others may have theirs in it."""
    while (FINALIZER in _finalizers(resource)) != is_held:
        metadata = resource["metadata"]
        others = [one for one in _finalizers(resource) if one != FINALIZER]
        finalizers = [*others, FINALIZER] if is_held else others
        change = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": finalizers}}
        try:
            return api.patch(kinds.ELASTIC_JOB, metadata["name"], change, metadata["namespace"])
        except Conflict as exc:
            current = api.get(kinds.ELASTIC_JOB, metadata["name"], metadata["namespace"])
            if current is None or current["metadata"]["uid"] != metadata["uid"]:
                raise StillTerminating("the resource is gone") from exc
            resource = current
    return resource
