"""What nodes have left for the workers of ElasticJobs. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from elasticdl.launcher.naming import JOB_LABEL, ROLE_LABEL, WORKER
from elasticdl.scheduler.snapshot import Node
from elasticdl.spec.cluster import amount

Document = Mapping[str, Any]
Amounts = dict[str, float]

CPU, GPU = "cpu", "nvidia.com/gpu"
MILLI = 1000  # what devices are counted in, before a unit is chosen
KIND = "nvidia.com/gpu.product"  # label of a node, where its devices are GPUs
RACK = "topology.kubernetes.io/zone"


def unit_of(requests: Iterable[Mapping[str, float]], device: str) -> int:
    """Thousandths of the resource that one device is: the largest that every worker takes a whole number of."""
    return math.gcd(*(milli(one.get(device, 0.0)) for one in requests)) or MILLI


def shared(documents: Iterable[Document]) -> str:
    """What is shared unless somebody says otherwise: GPUs where nodes have them, else cores."""
    allocatable = [node["status"].get("allocatable", {}) for node in documents]
    return GPU if any(amount(str(one.get(GPU, "0"))) for one in allocatable) else CPU


def milli(quantity: float) -> int:
    return round(quantity * MILLI)


def nodes(
    documents: Iterable[Document], pods: Iterable[Document], jobs: Collection[str], device: str, unit: int
) -> tuple[Node, ...]:
    """Those that take pods, with what all pods but the workers of `jobs` leave."""
    taken: dict[str, Amounts] = {}
    for pod in pods:
        where = pod["spec"].get("nodeName")
        if where and is_alive(pod) and job_of_worker(pod) not in jobs:
            held = taken.setdefault(where, {"pods": 0.0})
            held["pods"] += 1
            for name, quantity in requests(pod).items():
                held[name] = held.get(name, 0.0) + quantity
    return tuple(_node(one, taken.get(one["metadata"]["name"], {}), device, unit) for one in documents if _takes(one))


def _node(document: Document, taken: Mapping[str, float], device: str, unit: int) -> Node:
    metadata = document["metadata"]
    has = {name: amount(str(text)) for name, text in document["status"].get("allocatable", {}).items()}
    left = {name: max(quantity - taken.get(name, 0.0), 0.0) for name, quantity in has.items()}
    labels = metadata.get("labels") or {}
    devices = milli(left.pop(device, 0.0)) // unit
    return Node(metadata["name"], devices, labels.get(KIND, ""), labels.get(RACK, ""), left)


def _takes(document: Document) -> bool:
    """Whether pods of anybody may come: ready, not cordoned, no taint but those of devices."""
    spec, conditions = document.get("spec", {}), document["status"].get("conditions", [])
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    taints = [one for one in spec.get("taints") or [] if one["effect"] in ("NoSchedule", "NoExecute")]
    return is_ready and not spec.get("unschedulable") and all("gpu" in one["key"] for one in taints)


def requests(pod: Document) -> Amounts:
    """What the scheduler of Kubernetes counts for it: its containers together, or the greatest that runs before."""
    together: Amounts = {}
    for container in pod["spec"].get("containers", []):
        for name, quantity in _asked(container).items():
            together[name] = together.get(name, 0.0) + quantity
    for container in pod["spec"].get("initContainers", []):
        for name, quantity in _asked(container).items():
            together[name] = max(together.get(name, 0.0), quantity)
    for name, text in (pod["spec"].get("overhead") or {}).items():
        together[name] = together.get(name, 0.0) + amount(str(text))
    return together


def _asked(container: Document) -> Amounts:
    asked = (container.get("resources") or {}).get("requests") or {}
    return {name: amount(str(text)) for name, text in asked.items()}


def job_of_worker(pod: Document) -> str:
    """The ElasticJob whose worker it is; "": of none."""
    labels = pod["metadata"].get("labels") or {}
    return labels.get(JOB_LABEL, "") if labels.get(ROLE_LABEL) == WORKER else ""


def is_alive(pod: Document) -> bool:
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def placed(pods: Iterable[Document]) -> dict[str, dict[str, int]]:
    """By job: how many of its workers are on which node, of those that have one and stay."""
    found: dict[str, dict[str, int]] = {}
    for pod in pods:
        job, where = job_of_worker(pod), pod["spec"].get("nodeName")
        if job and where and is_alive(pod) and "deletionTimestamp" not in pod["metadata"]:
            on = found.setdefault(job, {})
            on[where] = on.get(where, 0) + 1
    return found
