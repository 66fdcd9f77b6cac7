"""What a pod requests, its limits, and its priority."""

from __future__ import annotations

import math

from elasticdl.launcher.kubernetes.naming import WORKER, Document, cluster_spec
from elasticdl.spec import JobSpec, RoleSpec
from elasticdl.spec.cluster import parse_quantity

MEMORY_RAISE_FACTOR = 1.5  # after each time a pod ran out of memory
MAX_MEMORY_FACTOR = 3.0
HIGH_PRIORITY, LOW_PRIORITY = "elasticdl-high", "elasticdl-low"
_MEBIBYTE = 1 << 20


def role_spec(spec: JobSpec, role: str) -> RoleSpec:
    found = getattr(cluster_spec(spec), role)
    assert isinstance(found, RoleSpec)
    return found


def memory_limit(spec: JobSpec, role: str, raises: int) -> str:
    """The memory a pod may use at most after so many raises; "": it has no limit. The same twice: no more to give."""
    asked = role_spec(spec, role)
    limit = asked.limits.get("memory") or asked.requests.get("memory", "")
    return _raise_quantity(limit, raises, _max_memory_bytes(spec, limit)) if limit else ""


def resource_requirements(spec: JobSpec, role: str, raises: int = 0) -> Document:
    """Memory, storage and devices may not exceed what was asked for; idle cores are anyone's."""
    asked = role_spec(spec, role)
    requests = dict(asked.requests)
    limits = {name: quantity for name, quantity in requests.items() if name != "cpu"} | asked.limits
    if "memory" in limits:
        limits["memory"] = memory_limit(spec, role, raises)
    if "memory" in requests:
        requests["memory"] = _raise_quantity(requests["memory"], raises, parse_quantity(limits["memory"]))
    return {"requests": requests, "limits": limits}


def _max_memory_bytes(spec: JobSpec, limit: str) -> float:
    return parse_quantity(cluster_spec(spec).max_memory) or MAX_MEMORY_FACTOR * parse_quantity(limit)


def _raise_quantity(quantity: str, raises: int, most: float) -> str:
    before = parse_quantity(quantity)
    # A hundred raises are beyond any limit; more would only be too large for a number.
    after = math.floor(min(before * MEMORY_RAISE_FACTOR ** min(raises, 100), most))
    if after <= before:
        return quantity
    return f"{after >> 20}Mi" if after % _MEBIBYTE == 0 else str(after)


def priority_class(spec: JobSpec, role: str, is_high: bool | None = None) -> str:
    """Of a role's pods; "": that of the cluster. With a share it is the caller who knows which pod is `is_high`."""
    asked = role_spec(spec, role)
    if role == WORKER and asked.high_share is not None:
        return HIGH_PRIORITY if is_high else LOW_PRIORITY
    return {"high": HIGH_PRIORITY, "low": LOW_PRIORITY}.get(asked.priority, asked.priority)


def is_high_priority(share: float, desired: int, living_high: int) -> bool:
    """Whether the next worker is of high priority: until at least this share of the desired workers is."""
    return living_high < math.ceil(share * desired - 1e-9)
