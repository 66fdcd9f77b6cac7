"""Pods as a real cluster shows them, reduced to the fields of their status."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]

STARTED, FINISHED, ENFORCED = "2026-03-01T10:00:05Z", "2026-03-01T10:09:02Z", "2026-03-01T10:09:35Z"
NO_NODE = (
    "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }, "
    "2 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
)


def pod(phase: str = "Running", **changed: Any) -> Document:
    metadata = {"name": "mnist-worker-3", "namespace": "team", "uid": "6c0ffee0", "resourceVersion": "7"}
    resources = {"requests": {"memory": "2Gi"}, "limits": {"memory": "2Gi"}}
    container = {"name": "worker", "image": "registry.local/mnist:1", "resources": resources}
    spec = {"nodeName": "node-2", "restartPolicy": "Never", "containers": [container]}
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": "True" if phase == "Running" else "False"},
    ]
    status: Document = {"phase": phase, "conditions": conditions, "startTime": STARTED}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
    for name, value in changed.items():
        document[name] = document[name] | value
    return document


def container(pod: Document, **state: Any) -> Document:
    status = {"name": "worker", "ready": "running" in state, "restartCount": 0, "state": state, "lastState": {}}
    return pod | {"status": pod["status"] | {"containerStatuses": [status]}}


def condition(pod: Document, type_: str, status: str, reason: str = "", message: str = "") -> Document:
    others = [condition for condition in pod["status"]["conditions"] if condition["type"] != type_]
    added = {"type": type_, "status": status, "reason": reason, "message": message}
    return pod | {"status": pod["status"] | {"conditions": [*others, added]}}


def deleted(pod: Document, grace_s: int = 35) -> Document:
    deletion = {"deletionTimestamp": ENFORCED, "deletionGracePeriodSeconds": grace_s}
    return pod | {"metadata": pod["metadata"] | deletion}


def terminated(code: int, reason: str = "", finished_at: str = FINISHED, **fields: Any) -> Document:
    reason = reason or ("Completed" if code == 0 else "Error")
    return {
        "terminated": {"exitCode": code, "reason": reason, "startedAt": STARTED, "finishedAt": finished_at, **fields}
    }


def ended(code: int, reason: str = "", **fields: Any) -> Document:
    return container(pod("Succeeded" if code == 0 else "Failed"), **terminated(code, reason, **fields))


def waiting(reason: str, message: str = "") -> Document:
    return container(pod("Pending"), waiting={"reason": reason} | ({"message": message} if message else {}))


def running() -> Document:
    return container(pod(), running={"startedAt": STARTED})


def unscheduled(reason: str = "Unschedulable", message: str = NO_NODE) -> Document:
    return condition(pod("Pending", spec={"nodeName": ""}), "PodScheduled", "False", reason, message)


def disrupted(pod: Document, reason: str, message: str) -> Document:
    return condition(pod, "DisruptionTarget", "True", reason, message)


PREEMPTED = ("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod")
DRAINED = ("EvictionByEvictionAPI", "Eviction API: evicting")
KUBELET = (
    "TerminationByKubelet",
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 3052Ki.",
)
TAINTED = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
COLLECTED = ("DeletionByPodGC", "PodGC: node no longer exists")
