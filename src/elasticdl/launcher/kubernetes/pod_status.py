"""What a pod object says of its one container: it waits, it runs, or it has ended, and why. Pure.

Whoever takes a pod away leaves a condition `DisruptionTarget` on it, with one of these reasons; what the container
then exits with (143 after SIGTERM, 137 after SIGKILL, 0 if it left in time) is no failure of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from elasticdl.launcher.kubernetes.naming import ROLE_LABEL

Pod = Mapping[str, Any]

PREEMPTED, EVICTED, DRAINED, DELETED, NODE_LOST = "preempted", "evicted", "drained", "deleted", "node-lost"
OOM, IMAGE, CRASHED, COMPLETED, UNKNOWN = "oom", "image", "crashed", "completed", ""

_DISRUPTIONS = {
    "PreemptionByScheduler": PREEMPTED,
    "EvictionByEvictionAPI": DRAINED,  # `kubectl drain` and autoscalers that remove a node
    "TerminationByKubelet": EVICTED,  # the node is short of memory or disk, or shuts down
    "DeletionByTaintManager": NODE_LOST,
    "DeletionByPodGC": NODE_LOST,
}
_STATUS_REASONS = {"NodeLost": NODE_LOST, "Preempting": PREEMPTED}  # of older clusters; any other: the kubelet refused
_START_FAILURES = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})
_SIGNAL_CODES = range(129, 193)  # 128 + the number of the signal, as a shell says it


@dataclass(frozen=True, slots=True)
class PodWaiting:
    why: str  # in the words of the scheduler or of the kubelet
    is_trouble: bool = field(default=False, compare=False)  # it will not end by itself: people are told at once


@dataclass(frozen=True, slots=True)
class PodRunning:
    node: str


@dataclass(frozen=True, slots=True)
class PodExited:
    """By `code`, by `signal`, or (both None) while nobody could see how."""

    code: int | None
    signal: int | None
    cause: str
    why: str


PodStatus = PodWaiting | PodRunning | PodExited


def read_pod_status(pod: Pod | None, last: Pod | None = None) -> PodStatus:
    """Of a pod as it is; or, where it is gone, as it was last seen."""
    if pod is None:
        return _status_of_deleted(last)
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed") or status.get("reason") == "NodeLost" or _terminated_state(pod):
        return _exited_status(pod)
    if _is_on_lost_node(pod):
        return PodExited(None, None, NODE_LOST, _disruption_cause(pod)[1])
    if "running" in _container_state(pod):
        return PodRunning(pod["spec"].get("nodeName", ""))
    return _waiting_status(pod)


def _status_of_deleted(last: Pod | None) -> PodExited:
    """The object is gone. That its container ended may have been the last we saw of it, or nothing."""
    if last is None:
        return PodExited(None, None, DELETED, "the pod is gone")
    if _terminated_state(last) or last.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return _exited_status(last)
    cause, why = _disruption_cause(last)
    return PodExited(None, None, cause or DELETED, why or "the pod was deleted")


def _exited_status(pod: Pod) -> PodExited:
    ended = _terminated_state(pod)
    code, signal = _code_and_signal(ended)
    cause, why = _external_cause(pod, ended)
    if not cause:
        cause, why = _own_cause(pod, ended, code, signal)
    return PodExited(code, signal, cause, why)


def _external_cause(pod: Pod, ended: Pod) -> tuple[str, str]:
    """Whether somebody took it away, and who; "" if it ended by itself."""
    cause, why = _disruption_cause(pod)
    if cause:
        return cause, why
    status = pod.get("status", {})
    reason, message = status.get("reason", ""), status.get("message", "")
    if reason:
        return _STATUS_REASONS.get(reason, EVICTED), _join_reason(reason, message)
    if "deletionTimestamp" in pod["metadata"] and not _ended_before_deletion(pod, ended):
        return DELETED, "the pod was deleted"
    return "", ""


def _own_cause(pod: Pod, ended: Pod, code: int | None, signal: int | None) -> tuple[str, str]:
    reason, message = ended.get("reason", ""), ended.get("message", "")
    if reason == "OOMKilled":
        return OOM, f"out of memory (limit {_memory_limit(pod)})"
    if reason in _START_FAILURES:
        return IMAGE, _join_reason(reason, message)
    if not ended:
        if pod.get("status", {}).get("phase") == "Succeeded":
            return COMPLETED, "completed"
        return UNKNOWN, "the pod failed, and nothing in it says why"
    if code == 0:
        return COMPLETED, "completed"
    how = f"killed by signal {signal}" if signal is not None else f"exited with code {code}"
    return CRASHED, f"{how}: {message}" if message else how


def _code_and_signal(ended: Pod) -> tuple[int | None, int | None]:
    if not ended:
        return None, None
    code = int(ended["exitCode"])
    if ended.get("signal"):
        return None, int(ended["signal"])
    return (None, code - 128) if code in _SIGNAL_CODES else (code, None)


def _disruption_cause(pod: Pod) -> tuple[str, str]:
    condition = _condition(pod, "DisruptionTarget")
    if condition.get("status") != "True":
        return "", ""
    reason = condition.get("reason", "")
    return _DISRUPTIONS.get(reason, EVICTED), _join_reason(reason, condition.get("message", ""))


def _is_on_lost_node(pod: Pod) -> bool:
    """Deleted because its node is silent: no kubelet will ever say that the container ended."""
    is_deleted = "deletionTimestamp" in pod["metadata"] and _disruption_cause(pod)[0] == NODE_LOST
    # One that the kubelet never saw has no such condition.
    return is_deleted and _condition(pod, "Ready").get("status") != "True"


def _ended_before_deletion(pod: Pod, ended: Pod) -> bool:
    """Whether the container was done before anybody asked for its end: then the deletion is not why."""
    if not ended.get("finishedAt"):
        return False
    metadata = pod["metadata"]
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds", 0))
    # The deletion's time is when it will be enforced; both are in whole seconds.
    return parse_time(ended["finishedAt"]) < parse_time(metadata["deletionTimestamp"]) - grace


def _waiting_status(pod: Pod) -> PodWaiting:
    if "deletionTimestamp" in pod["metadata"]:
        return PodWaiting("the pod is being deleted")
    waiting = _container_state(pod).get("waiting", {})
    reason = waiting.get("reason", "")
    if reason and reason not in ("ContainerCreating", "PodInitializing"):
        return PodWaiting(_join_reason(reason, waiting.get("message", "")), is_trouble=True)
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return PodWaiting(_join_reason(scheduled.get("reason", ""), scheduled.get("message", "")), is_trouble=True)
    if node := pod["spec"].get("nodeName"):
        return PodWaiting(f"the container is being started on {node}")
    return PodWaiting("no scheduler has looked at the pod yet")


def _container(pod: Pod) -> Pod:
    """Ours is called as its role; others were added by an admission webhook."""
    containers, role = pod["spec"]["containers"], pod["metadata"].get("labels", {}).get(ROLE_LABEL)
    found: Pod = next((one for one in containers if one["name"] == role), containers[0])
    return found


def _container_state(pod: Pod) -> Pod:
    name = _container(pod)["name"]
    statuses = pod.get("status", {}).get("containerStatuses") or []
    state: Pod = next((one.get("state") or {} for one in statuses if one["name"] == name), {})
    return state


def _terminated_state(pod: Pod) -> Pod:
    ended: Pod = _container_state(pod).get("terminated") or {}
    return ended


def _condition(pod: Pod, type_: str) -> Pod:
    conditions = pod.get("status", {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == type_), {})


def _memory_limit(pod: Pod) -> str:
    limits = _container(pod).get("resources", {}).get("limits", {})
    return str(limits.get("memory", "of the node"))


def _join_reason(reason: str, message: str) -> str:
    return f"{reason}: {message}" if reason and message else reason or message


def parse_time(text: str) -> datetime:
    """A time as Kubernetes writes it."""
    return datetime.fromisoformat(text)
