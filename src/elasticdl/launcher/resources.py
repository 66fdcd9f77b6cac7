"""What a pod asks for and gets at most, and how important it is."""

from __future__ import annotations

import math

from elasticdl.launcher.naming import WORKER, Document, cluster_of
from elasticdl.spec import JobSpec, RoleSpec
from elasticdl.spec.cluster import amount

RAISE = 1.5  # after each time a pod ran out of memory
MOST_RAISED = 3.0
HIGH, LOW = "elasticdl-high", "elasticdl-low"
_MEBIBYTE = 1 << 20


def role_of(spec: JobSpec, role: str) -> RoleSpec:
    found = getattr(cluster_of(spec), role)
    assert isinstance(found, RoleSpec)
    return found


def memory_of(spec: JobSpec, role: str, raises: int) -> str:
    """The memory a pod may use at most after so many raises; "": it has no limit. The same twice: no more to give."""
    asked = role_of(spec, role)
    limit = asked.limits.get("memory") or asked.requests.get("memory", "")
    return _raised(limit, raises, _most(spec, limit)) if limit else ""


def resources(spec: JobSpec, role: str, raises: int = 0) -> Document:
    """Memory, storage and devices may not exceed what was asked for; idle cores are anyone's."""
    asked = role_of(spec, role)
    requests = dict(asked.requests)
    limits = {name: quantity for name, quantity in requests.items() if name != "cpu"} | asked.limits
    if "memory" in limits:
        limits["memory"] = memory_of(spec, role, raises)
    if "memory" in requests:
        requests["memory"] = _raised(requests["memory"], raises, amount(limits["memory"]))
    return {"requests": requests, "limits": limits}


def _most(spec: JobSpec, limit: str) -> float:
    return amount(cluster_of(spec).memory_most) or MOST_RAISED * amount(limit)


def _raised(quantity: str, raises: int, most: float) -> str:
    before = amount(quantity)
    # A hundred raises are beyond any limit; more would only be too large for a number.
    after = math.floor(min(before * RAISE ** min(raises, 100), most))
    if after <= before:
        return quantity
    return f"{after >> 20}Mi" if after % _MEBIBYTE == 0 else str(after)


def priority_class(spec: JobSpec, role: str, is_high: bool | None = None) -> str:
    """Of a role's pods; "": that of the cluster. With a share it is the caller who knows which pod is `is_high`."""
    asked = role_of(spec, role)
    if role == WORKER and asked.high_share is not None:
        return HIGH if is_high else LOW
    return {"high": HIGH, "low": LOW}.get(asked.priority, asked.priority)


def is_high(share: float, wish: int, living_high: int) -> bool:
    """Whether the next worker is of high priority: until at least this share of those wished for is."""
    return living_high < math.ceil(share * wish - 1e-9)
