"""What the operator says about a job, as a change of its status. Pure: objects in, a change out.

The master says how training goes. The operator says what the master cannot: that there is none yet, that the spec is
wrong, that the job is suspended, that the master ended without a word. Conditions are the operator's alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, NamedTuple

from elasticdl.errors import SpecError
from elasticdl.launcher.kubernetes import naming
from elasticdl.spec.job import JobSpec
from elasticdl.spec.load import resolve_elastic_job
from elasticdl.spec.phase import Phase

Document = Mapping[str, Any]

# As `kubectl get` shows the phases.
INVALID, SUSPENDED, PENDING, RUNNING, SUCCEEDED, FAILED = (
    phase.capitalize()
    for phase in (Phase.INVALID, Phase.SUSPENDED, Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED)
)
FINAL_PHASES = frozenset(phase.capitalize() for phase in Phase if phase.is_over)


class Condition(NamedTuple):
    type: str
    is_true: bool
    reason: str
    message: str


def accepted_condition() -> Condition:
    return Condition("Accepted", True, "Valid", "The spec is valid.")


def refused_condition(why: str) -> Condition:
    return Condition("Accepted", False, "Invalid", why)


def followed_condition() -> Condition:
    return Condition("Followed", True, "Current", "The job is what the spec says.")


def unfollowed_condition(why: str) -> Condition:
    return Condition("Followed", False, "SpecChanged", why)


def is_over(resource: Document) -> bool:
    return (resource.get("status") or {}).get("phase") in FINAL_PHASES


def status_change(
    resource: Document,
    job: JobSpec | None,
    master: Document | None,
    conditions: list[Condition],
    now: str,
    held_up_by: str = "",
    result: Document | None = None,
) -> dict[str, Any]:
    """What to write into the status; {} when it says so already.

    `held_up_by`: why there is no master yet. `result`: what the master wrote down of the end.
    """
    status = resource.get("status") or {}
    change: dict[str, Any] = {"observedGeneration": resource["metadata"].get("generation", 0)}
    stands = _phase_and_reason(status, job, master, conditions, held_up_by, result)
    if stands is not None:
        change |= {"phase": stands[0], "reason": stands[1]}
        if stands[0] in FINAL_PHASES:
            change["finishedAt"] = _ended_at(result) or now
        if job is not None and stands[0] not in FINAL_PHASES:
            change |= _initial_counts(job)
    phase = change.get("phase", status.get("phase", ""))
    conditions = [
        *conditions,
        _suspended_condition(phase, change.get("reason", status.get("reason", ""))),
        _finished_condition(phase),
    ]
    change["conditions"] = merge_conditions(status.get("conditions", []), conditions, now)
    return {name: value for name, value in change.items() if status.get(name) != value}


def merge_conditions(before: Iterable[Document], newest: Iterable[Condition], now: str) -> list[dict[str, Any]]:
    """The list of conditions, with the time of each change of status. Of one type the last that was said counts."""
    old = {one["type"]: dict(one) for one in before}
    for one in {one.type: one for one in newest}.values():
        status = "True" if one.is_true else "False"
        was = old.get(one.type, {})
        since = was["lastTransitionTime"] if was.get("status") == status else now
        old[one.type] = {
            "type": one.type,
            "status": status,
            "reason": one.reason,
            "message": one.message,
            "lastTransitionTime": since,
        }
    return list(old.values())


def _phase_and_reason(
    status: Document,
    job: JobSpec | None,
    master: Document | None,
    conditions: list[Condition],
    held_up_by: str,
    result: Document | None,
) -> tuple[str, str] | None:
    """Phase and reason, or None where the master's word stands."""
    phase = status.get("phase", "")
    if phase in FINAL_PHASES:
        return None
    if master is None or job is None:
        wrong = next((one.message for one in conditions if one.type == "Accepted" and not one.is_true), "")
        return (INVALID, wrong) if wrong else (PENDING, held_up_by)
    if result is not None:
        return str(result["phase"]).capitalize(), str(result.get("reason", ""))
    if not master["spec"]["replicas"]:
        return SUSPENDED, "spec.suspend is true"
    has_spoken = "startedAt" in status and phase not in (SUSPENDED, INVALID)
    if has_spoken:
        return None
    if (master.get("status") or {}).get("readyReplicas", 0) > 0:
        return RUNNING, "the master runs"
    queue = job.cluster.queue if job.cluster else ""
    return PENDING, "the pod of the master does not run yet" + (f"; its queue is {queue}" if queue else "")


def _ended_at(result: Document | None) -> str:
    ended_at = (result or {}).get("ended_at")
    return datetime.fromtimestamp(ended_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if ended_at else ""


def _suspended_condition(phase: str, reason: str) -> Condition:
    if phase == SUSPENDED:
        return Condition("Suspended", True, "Suspended", f"The job has no pods: {reason}.")
    return Condition("Suspended", False, "Resumed", "The job may have pods.")


def _finished_condition(phase: str) -> Condition:
    if phase in FINAL_PHASES:
        return Condition("Finished", True, phase, "The job is over.")
    return Condition("Finished", False, "NotFinished", "The job is not over.")


def _initial_counts(job: JobSpec) -> dict[str, Any]:
    """Nobody works: the master is not there, or has not spoken yet."""
    workers = job.workers
    counts = {"ready": 0, "wanted": workers.replicas, "min": workers.min, "max": workers.max}
    return {
        "workers": counts,
        "workersText": f"0/{workers.replicas} ({workers.min}-{workers.max})",
        "ps": {"ready": 0, "wanted": job.ps.replicas or 0},
        "selector": naming.label_selector(job, "worker"),
    }


_SCALABLE_ROLES = ("workers", "ps")  # their wishes; the master hears of them itself


def explain_unsupported_change(running: JobSpec, resource: Mapping[str, Any]) -> str:
    """A sentence about what differs from the job that runs; "" if it can follow."""
    followed = deepcopy(dict(resource))
    replicas = (followed["spec"].get("workers") or {}).get("replicas")
    for part in _SCALABLE_ROLES:
        if "replicas" in (followed["spec"].get(part) or {}):
            followed["spec"][part]["replicas"] = getattr(running, part).replicas
    try:
        job = resolve_elastic_job(followed)
    except SpecError as exc:
        return f"The job goes on as it was begun: {exc}"
    low, high = running.workers.min, running.workers.max
    differing = list(_differences(running.model_dump(mode="json"), job.model_dump(mode="json"), ""))
    if differing:
        return (
            f"The job goes on as it was begun; it cannot follow a change of {', '.join(differing)}. Change it back, or "
            "delete the job and create it anew (only workers.replicas, ps.replicas and suspend may change)."
        )
    if isinstance(replicas, int) and not low <= replicas <= high:
        return f"The job goes on as it was begun: workers.replicas {replicas} is outside its min {low} .. max {high}."
    return ""


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict) and path.count(".") < 1:
        for name in before.keys() | after.keys():
            yield from _differences(before.get(name), after.get(name), f"{path}.{name}".strip("."))
    elif before != after:
        yield path
