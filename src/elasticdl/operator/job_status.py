"""Computes the status that the operator writes into an ElasticJob. Pure: objects in, a change of the status out.

The master writes how training progresses. The operator writes what the master cannot: that there is no master yet, that
the spec is invalid, that the job is suspended, that the master ended without a last status. Only the operator writes
conditions.
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


def not_accepted_condition(problem: str) -> Condition:
    return Condition("Accepted", False, "Invalid", problem)


def applied_condition() -> Condition:
    return Condition("SpecApplied", True, "UpToDate", "The running job matches the spec.")


def not_applied_condition(reason: str, message: str) -> Condition:
    """The running job differs from its spec, and the operator cannot change that."""
    return Condition("SpecApplied", False, reason, message)


def is_over(resource: Document) -> bool:
    return (resource.get("status") or {}).get("phase") in FINAL_PHASES


def status_change(
    resource: Document,
    job: JobSpec | None,
    master: Document | None,
    conditions: list[Condition],
    now: str,
    blocked_reason: str = "",
    result: Document | None = None,
) -> dict[str, Any]:
    """The fields of the status that must be written; {} if it is up to date.

    `blocked_reason`: why there is no master yet. `result`: the result that the master saved before it ended.
    """
    status = resource.get("status") or {}
    change: dict[str, Any] = {"observedGeneration": resource["metadata"].get("generation", 0)}
    phase_and_reason = _phase_and_reason(status, job, master, conditions, blocked_reason, result)
    if phase_and_reason is not None:
        phase, reason = phase_and_reason
        change |= {"phase": phase, "reason": reason}
        if phase in FINAL_PHASES:
            change["finishedAt"] = _end_time(result) or now
        elif job is not None:
            change |= _initial_counts(job)
    current = {**status, **change}
    conditions = [
        *conditions,
        _suspended_condition(current.get("phase", ""), current.get("reason", "")),
        _finished_condition(current.get("phase", "")),
    ]
    change["conditions"] = merge_conditions(status.get("conditions", []), conditions, now)
    return {name: value for name, value in change.items() if status.get(name) != value}


def merge_conditions(
    written_conditions: Iterable[Document], conditions: Iterable[Condition], now: str
) -> list[dict[str, Any]]:
    """The list of conditions with the time of each change of status. Of several of one type the last counts."""
    merged = {document["type"]: dict(document) for document in written_conditions}
    for condition in {condition.type: condition for condition in conditions}.values():
        status = "True" if condition.is_true else "False"
        previous = merged.get(condition.type, {})
        merged[condition.type] = {
            "type": condition.type,
            "status": status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": previous["lastTransitionTime"] if previous.get("status") == status else now,
        }
    return list(merged.values())


def _phase_and_reason(
    status: Document,
    job: JobSpec | None,
    master: Document | None,
    conditions: list[Condition],
    blocked_reason: str,
    result: Document | None,
) -> tuple[str, str] | None:
    """Phase and reason, or None while those that the master wrote are right."""
    phase = status.get("phase", "")
    if phase in FINAL_PHASES:
        return None
    if master is None or job is None:
        is_refused = (condition for condition in conditions if condition.type == "Accepted" and not condition.is_true)
        problem = next((condition.message for condition in is_refused), "")
        return (INVALID, problem) if problem else (PENDING, blocked_reason)
    if result is not None:
        return str(result["phase"]).capitalize(), str(result.get("reason", ""))
    if not master["spec"]["replicas"]:
        return SUSPENDED, "spec.suspend is true"
    is_written_by_master = "startedAt" in status and phase not in (SUSPENDED, INVALID)
    if is_written_by_master:
        return None
    if (master.get("status") or {}).get("readyReplicas", 0) > 0:
        return RUNNING, "the master is running"
    queue = job.cluster.queue if job.cluster else ""
    return PENDING, "the pod of the master is not running yet" + (f"; its queue is {queue}" if queue else "")


def _end_time(result: Document | None) -> str:
    ended_at = (result or {}).get("ended_at")
    return datetime.fromtimestamp(ended_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if ended_at else ""


def _suspended_condition(phase: str, reason: str) -> Condition:
    if phase == SUSPENDED:
        return Condition("Suspended", True, "Suspended", f"The job has no pods: {reason}.")
    return Condition("Suspended", False, "NotSuspended", "The job is not suspended.")


def _finished_condition(phase: str) -> Condition:
    if phase in FINAL_PHASES:
        return Condition("Finished", True, phase, "The job is over.")
    return Condition("Finished", False, "NotFinished", "The job is not over.")


def _initial_counts(job: JobSpec) -> dict[str, Any]:
    """The counts of a job whose master does not exist, or has not written its status yet: nothing is ready."""
    workers = job.workers
    counts = {"ready": 0, "desired": workers.replicas, "min": workers.min, "max": workers.max}
    return {
        "workers": counts,
        "workersText": f"0/{workers.replicas} ({workers.min}-{workers.max})",
        "ps": {"ready": 0, "desired": job.ps.replicas or 0},
        "selector": naming.label_selector(job, "worker"),
    }


_SCALABLE_ROLES = ("workers", "ps")  # the master watches their `replicas` itself


def explain_unsupported_change(running: JobSpec, resource: Mapping[str, Any]) -> str:
    """Explains which part of the spec the running job cannot adopt; "" if it can adopt all of it."""
    scaled_back = deepcopy(dict(resource))
    replicas = (scaled_back["spec"].get("workers") or {}).get("replicas")
    for role in _SCALABLE_ROLES:
        if "replicas" in (scaled_back["spec"].get(role) or {}):
            scaled_back["spec"][role]["replicas"] = getattr(running, role).replicas
    try:
        job = resolve_elastic_job(scaled_back)
    except SpecError as exc:
        return f"The running job keeps the spec that it started with: {exc}"
    low, high = running.workers.min, running.workers.max
    changed_fields = list(_changed_fields(running.model_dump(mode="json"), job.model_dump(mode="json"), ""))
    if changed_fields:
        return (
            f"The running job keeps the spec that it started with: {', '.join(changed_fields)} cannot change while it "
            "runs. Revert the change, or delete the job and create it again. (Only workers.replicas, ps.replicas and "
            "suspend can change.)"
        )
    if isinstance(replicas, int) and not low <= replicas <= high:
        return f"workers.replicas {replicas} is outside min {low} .. max {high} of the running job."
    return ""


def _changed_fields(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict) and path.count(".") < 1:
        for name in before.keys() | after.keys():
            yield from _changed_fields(before.get(name), after.get(name), f"{path}.{name}".strip("."))
    elif before != after:
        yield path
