"""The resource requests and limits of a pod, and its priority class."""

from __future__ import annotations

import math

from elasticdl.launcher.kubernetes.naming import WORKER, Document, cluster_spec
from elasticdl.spec import JobSpec, RoleSpec
from elasticdl.spec.cluster import parse_quantity

MEMORY_RAISE_FACTOR = 1.5  # each time a pod ran out of memory
MAX_MEMORY_FACTOR = 3.0
HIGH_PRIORITY, LOW_PRIORITY = "elasticdl-high", "elasticdl-low"
_MEBIBYTE = 1 << 20


def role_spec(spec: JobSpec, role: str) -> RoleSpec:
    settings = getattr(cluster_spec(spec), role)
    assert isinstance(settings, RoleSpec)
    return settings


def memory_limit(spec: JobSpec, role: str, raises: int) -> str:
    """The memory limit of a pod after `raises` raises; "" if it has none. It stops growing at the allowed maximum."""
    settings = role_spec(spec, role)
    limit = settings.limits.get("memory") or settings.requests.get("memory", "")
    return _raise_quantity(limit, raises, _max_memory_bytes(spec, limit)) if limit else ""


def resource_requirements(spec: JobSpec, role: str, raises: int = 0) -> Document:
    """Requests are limits, too, except for cpu: a pod may use idle cores."""
    settings = role_spec(spec, role)
    requests = dict(settings.requests)
    limits = {name: quantity for name, quantity in requests.items() if name != "cpu"} | settings.limits
    if "memory" in limits:
        limits["memory"] = memory_limit(spec, role, raises)
    if "memory" in requests:
        requests["memory"] = _raise_quantity(requests["memory"], raises, parse_quantity(limits["memory"]))
    return {"requests": requests, "limits": limits}


def _max_memory_bytes(spec: JobSpec, limit: str) -> float:
    return parse_quantity(cluster_spec(spec).max_memory) or MAX_MEMORY_FACTOR * parse_quantity(limit)


def _raise_quantity(quantity: str, raises: int, max_bytes: float) -> str:
    before = parse_quantity(quantity)
    # A hundred raises are beyond any limit; more would overflow.
    after = math.floor(min(before * MEMORY_RAISE_FACTOR ** min(raises, 100), max_bytes))
    if after <= before:
        return quantity
    return f"{after >> 20}Mi" if after % _MEBIBYTE == 0 else str(after)


def priority_class(spec: JobSpec, role: str, is_high: bool | None = None) -> str:
    """The priority class of a role's pods; "" for the cluster's default.

    With `high_share` the caller says whether this pod `is_high`.
    """
    settings = role_spec(spec, role)
    if role == WORKER and settings.high_share is not None:
        return HIGH_PRIORITY if is_high else LOW_PRIORITY
    return {"high": HIGH_PRIORITY, "low": LOW_PRIORITY}.get(settings.priority, settings.priority)


def is_high_priority(share: float, desired: int, living_high: int) -> bool:
    """Whether the next worker gets high priority: true until this share of the desired workers has it."""
    return living_high < math.ceil(share * desired - 1e-9)
