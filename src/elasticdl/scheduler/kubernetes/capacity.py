"""Computes what nodes have left for the workers of ElasticJobs. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from elasticdl.launcher.kubernetes.naming import JOB_LABEL, ROLE_LABEL, WORKER
from elasticdl.scheduler.snapshot import NodeInfo
from elasticdl.spec.cluster import parse_quantity

Document = Mapping[str, Any]
ResourceAmounts = dict[str, float]

CPU, GPU = "cpu", "nvidia.com/gpu"
MILLI = 1000  # thousandths per unit of a resource
GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"  # a label of nodes with GPUs
ZONE_LABEL = "topology.kubernetes.io/zone"


def milli_per_device(requests: Iterable[Mapping[str, float]], device: str) -> int:
    """Returns the size of a device in thousandths: the largest of which every worker requests a whole number."""
    return math.gcd(*(to_milli(request.get(device, 0.0)) for request in requests)) or MILLI


def default_device_resource(documents: Iterable[Document]) -> str:
    """Returns GPUs if a node has any, else cores."""
    allocatable = [node["status"].get("allocatable", {}) for node in documents]
    return GPU if any(parse_quantity(str(resources.get(GPU, "0"))) for resources in allocatable) else CPU


def to_milli(quantity: float) -> int:
    return round(quantity * MILLI)


def available_nodes(
    documents: Iterable[Document], pods: Iterable[Document], jobs: Collection[str], device: str, unit: int
) -> tuple[NodeInfo, ...]:
    """Returns the nodes that accept pods, with what all pods except the workers of `jobs` leave."""
    used_by_node: dict[str, ResourceAmounts] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and is_pod_alive(pod) and worker_job_name(pod) not in jobs:
            used = used_by_node.setdefault(node, {"pods": 0.0})
            used["pods"] += 1
            for name, quantity in pod_requests(pod).items():
                used[name] = used.get(name, 0.0) + quantity
    return tuple(
        _available_node(document, used_by_node.get(document["metadata"]["name"], {}), device, unit)
        for document in documents
        if _accepts_pods(document)
    )


def _available_node(document: Document, used: Mapping[str, float], device: str, unit: int) -> NodeInfo:
    metadata = document["metadata"]
    allocatable = {name: parse_quantity(str(text)) for name, text in document["status"].get("allocatable", {}).items()}
    remaining = {name: max(quantity - used.get(name, 0.0), 0.0) for name, quantity in allocatable.items()}
    labels = metadata.get("labels") or {}
    devices = to_milli(remaining.pop(device, 0.0)) // unit
    return NodeInfo(metadata["name"], devices, labels.get(GPU_PRODUCT_LABEL, ""), labels.get(ZONE_LABEL, ""), remaining)


def _accepts_pods(document: Document) -> bool:
    """Returns whether any pod may run on the node: it is ready, not cordoned, and has only taints for devices."""
    spec, conditions = document.get("spec", {}), document["status"].get("conditions", [])
    is_ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
    taints = [entry for entry in spec.get("taints") or [] if entry["effect"] in ("NoSchedule", "NoExecute")]
    return is_ready and not spec.get("unschedulable") and all("gpu" in entry["key"] for entry in taints)


def pod_requests(pod: Document) -> ResourceAmounts:
    """Returns what Kubernetes reserves for the pod: all its containers together, or the greatest init container."""
    total: ResourceAmounts = {}
    for container in pod["spec"].get("containers", []):
        for name, quantity in _container_requests(container).items():
            total[name] = total.get(name, 0.0) + quantity
    for container in pod["spec"].get("initContainers", []):
        for name, quantity in _container_requests(container).items():
            total[name] = max(total.get(name, 0.0), quantity)
    for name, text in (pod["spec"].get("overhead") or {}).items():
        total[name] = total.get(name, 0.0) + parse_quantity(str(text))
    return total


def _container_requests(container: Document) -> ResourceAmounts:
    requests = (container.get("resources") or {}).get("requests") or {}
    return {name: parse_quantity(str(text)) for name, text in requests.items()}


def worker_job_name(pod: Document) -> str:
    """Returns the ElasticJob whose worker the pod is; "": none."""
    labels = pod["metadata"].get("labels") or {}
    return labels.get(JOB_LABEL, "") if labels.get(ROLE_LABEL) == WORKER else ""


def is_pod_alive(pod: Document) -> bool:
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def count_workers_by_node(pods: Iterable[Document]) -> dict[str, dict[str, int]]:
    """Returns, by job, the number of its workers on each node, without pods that are pending or being deleted."""
    counts: dict[str, dict[str, int]] = {}
    for pod in pods:
        job, node = worker_job_name(pod), pod["spec"].get("nodeName")
        if job and node and is_pod_alive(pod) and "deletionTimestamp" not in pod["metadata"]:
            job_counts = counts.setdefault(job, {})
            job_counts[node] = job_counts.get(node, 0) + 1
    return counts
