"""What of a changed spec a running job cannot follow. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from elasticdl.errors import SpecError
from elasticdl.spec.elastic_job import job_of
from elasticdl.spec.job import JobSpec

_FOLLOWED = ("workers", "ps")  # their wishes; the master hears of them itself


def unfollowed(running: JobSpec, resource: Mapping[str, Any]) -> str:
    """A sentence about what differs from the job that runs; "" if it can follow."""
    asked = deepcopy(dict(resource))
    wish = (asked["spec"].get("workers") or {}).get("wish")
    for part in _FOLLOWED:
        if "wish" in (asked["spec"].get(part) or {}):
            asked["spec"][part]["wish"] = getattr(running, part).wish
    try:
        job = job_of(asked)
    except SpecError as exc:
        return f"The job goes on as it was begun: {exc}"
    low, high = running.workers.min, running.workers.max
    differing = list(_differences(running.model_dump(mode="json"), job.model_dump(mode="json"), ""))
    if differing:
        return (
            f"The job goes on as it was begun; it cannot follow a change of {', '.join(differing)}. Change it back, or "
            "delete the job and create it anew (only workers.wish, ps.wish and suspend may change)."
        )
    if isinstance(wish, int) and not low <= wish <= high:
        return f"The job goes on as it was begun: workers.wish {wish} is outside its min {low} .. max {high}."
    return ""


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict) and path.count(".") < 1:
        for name in before.keys() | after.keys():
            yield from _differences(before.get(name), after.get(name), f"{path}.{name}".strip("."))
    elif before != after:
        yield path
