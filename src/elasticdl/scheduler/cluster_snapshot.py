"""A Kubernetes cluster as a policy would see it: nodes with what they can still give our jobs, and our jobs.

Devices are GPUs (or what a worker asks for of a vendor) or cores. What pods of others request is taken off the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from elasticdl.kube.api import EVERYWHERE, Api
from elasticdl.kube.errors import Forbidden, NotThere
from elasticdl.kube.kinds import CONFIG_MAP, ELASTIC_JOB, NODE, POD
from elasticdl.launcher.naming import JOB_LABEL, ROLE_LABEL, STATUS, WORKER
from elasticdl.scheduler.described import MEMORY, job_of, requested, resource_of
from elasticdl.scheduler.snapshot import Node, Snapshot
from elasticdl.scheduler.snapshot_file import Pictured
from elasticdl.spec import JobSpec
from elasticdl.spec.cluster import amount
from elasticdl.spec.load import resolve

Document = dict[str, Any]
KIND_LABELS = ("nvidia.com/gpu.product", "node.kubernetes.io/instance-type")
RACK_LABEL = "topology.kubernetes.io/zone"
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Found:
    """A job of the cluster that is not over."""

    spec: JobSpec
    created_at: float
    workers: Counter[str]  # by node


def picture(api: Api, namespace: str, resource: str, now: float) -> Pictured:
    """The whole cluster, with our jobs of one namespace; those of other namespaces are others' pods."""
    pods = _pods(api, namespace)
    found = _jobs(api, namespace, pods)
    wanted = [requested(one.spec, resource) for one in found.values()]
    unit = 1.0 if all(float(one).is_integer() for one in wanted) else 0.1
    ours = {name for name, one in found.items() if resource_of(one.spec) == resource}
    taken = _taken(pods, namespace, ours)
    nodes = tuple(_node(one, resource, unit, taken) for one in api.list(NODE)[0] if _is_usable(one))
    there = {node.name for node in nodes}
    jobs = tuple(
        job_of(
            found[name].spec,
            Pictured(Snapshot(now, nodes, ()), resource, unit),
            created_at=min(found[name].created_at, now),
            workers={node: count for node, count in found[name].workers.items() if node in there},
        )
        for name in sorted(ours)
    )
    return Pictured(Snapshot(now, nodes, jobs), resource, unit)


def _pods(api: Api, namespace: str) -> list[Document]:
    """Of all namespaces, or of ours where we may see no others."""
    try:
        found, _ = api.list(POD, EVERYWHERE)
    except Forbidden:
        found, _ = api.list(POD, namespace)
    return [pod for pod in found if (pod.get("status") or {}).get("phase") not in _OVER]


def _jobs(api: Api, namespace: str, pods: Iterable[Document]) -> dict[str, Found]:
    maps, _ = api.list(CONFIG_MAP, namespace, "app.kubernetes.io/name=elasticdl")
    over = {_job_name(one) for one in maps if _role(one) == STATUS and "result.json" in (one.get("data") or {})}
    found: dict[str, Found] = {}
    workers: dict[str, Counter[str]] = {}
    for pod in pods:
        if _role(pod) == WORKER and pod["metadata"].get("namespace") == namespace and (node := _node_of(pod)):
            workers.setdefault(_job_name(pod), Counter())[node] += 1
    for one in maps:
        name = _job_name(one)
        if one["metadata"]["name"] == f"{name}-spec" and name not in over:
            spec = JobSpec.model_validate_json(one["data"]["spec.json"])
            found[name] = Found(spec, _created(one), workers.get(name, Counter()))
    for one in _elastic_jobs(api, namespace):
        name = str(one["metadata"]["name"])
        is_over = (one.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Stopped", "Invalid")
        if name not in found and name not in over and not is_over and not one["spec"].get("suspend"):
            given = {key: value for key, value in one["spec"].items() if key != "suspend"}
            found[name] = Found(resolve(given | {"name": name}, f"ElasticJob {name}"), _created(one), Counter())
    return found


def _elastic_jobs(api: Api, namespace: str) -> list[Document]:
    try:
        return api.list(ELASTIC_JOB, namespace)[0]
    except (NotThere, Forbidden):
        return []


def _taken(pods: Iterable[Document], namespace: str, ours: set[str]) -> dict[str, Counter[str]]:
    """By node: what pods request that are no workers of `ours`."""
    found: dict[str, Counter[str]] = {}
    for pod in pods:
        is_ours = _role(pod) == WORKER and pod["metadata"].get("namespace") == namespace and _job_name(pod) in ours
        if is_ours or not (node := _node_of(pod)):
            continue
        for container in pod["spec"].get("containers") or []:
            for name, quantity in ((container.get("resources") or {}).get("requests") or {}).items():
                found.setdefault(node, Counter())[name] += amount(str(quantity))  # type: ignore[assignment]
    return found


def _node(document: Document, resource: str, unit: float, taken: dict[str, Counter[str]]) -> Node:
    metadata, has = document["metadata"], (document.get("status") or {}).get("allocatable") or {}
    gone = taken.get(metadata["name"], Counter())
    labels = metadata.get("labels") or {}
    left = amount(str(has.get(resource, "0"))) - gone[resource]
    return Node(
        metadata["name"],
        max(int(left / unit + 1e-6), 0),
        next((labels[label] for label in KIND_LABELS if label in labels), ""),
        labels.get(RACK_LABEL, ""),
        {MEMORY: max(amount(str(has.get(MEMORY, "0"))) - gone[MEMORY], 0.0)},
    )


def _is_usable(node: Document) -> bool:
    """Ready, and taking pods."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or [])
    barred = any(one.get("effect") in ("NoSchedule", "NoExecute") for one in spec.get("taints") or [])
    return ready and not spec.get("unschedulable") and not barred


def _role(document: Document) -> str:
    return str((document["metadata"].get("labels") or {}).get(ROLE_LABEL, ""))


def _job_name(document: Document) -> str:
    return str((document["metadata"].get("labels") or {}).get(JOB_LABEL, ""))


def _node_of(pod: Document) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _created(document: Document) -> float:
    return datetime.fromisoformat(document["metadata"]["creationTimestamp"]).timestamp()
