"""Reads the status of a pod object: its container waits, runs, or has exited, and why. Pure.

Kubernetes sets a condition `DisruptionTarget`, with one of these reasons, on a pod that it takes away; the exit code
that follows (143 after SIGTERM, 137 after SIGKILL, 0 if it left in time) is no failure of the container.
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
_STATUS_REASONS = {"NodeLost": NODE_LOST, "Preempting": PREEMPTED}  # of older clusters; with others the kubelet evicts
_START_FAILURES = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})
_SIGNAL_CODES = range(129, 193)  # 128 + the number of the signal, as in a shell


@dataclass(frozen=True, slots=True)
class PodWaiting:
    reason: str  # in the words of the scheduler or of the kubelet
    is_trouble: bool = field(default=False, compare=False)  # the user has to act, so it is reported at once


@dataclass(frozen=True, slots=True)
class PodRunning:
    node: str


@dataclass(frozen=True, slots=True)
class PodExited:
    """The pod exited with `code`, or by `signal`; both are None if neither is known."""

    code: int | None
    signal: int | None
    cause: str
    reason: str


PodStatus = PodWaiting | PodRunning | PodExited


def read_pod_status(pod: Pod | None, last: Pod | None = None) -> PodStatus:
    """The status of a pod; for a pod that is gone (None), the status at its end, from its `last` version."""
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
    """The status of a pod whose object is gone; its last version may or may not say how the container exited."""
    if last is None:
        return PodExited(None, None, DELETED, "the pod is gone")
    if _terminated_state(last) or last.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return _exited_status(last)
    cause, reason = _disruption_cause(last)
    return PodExited(None, None, cause or DELETED, reason or "the pod was deleted")


def _exited_status(pod: Pod) -> PodExited:
    terminated = _terminated_state(pod)
    code, signal = _code_and_signal(terminated)
    cause, reason = _external_cause(pod, terminated)
    if not cause:
        cause, reason = _own_cause(pod, terminated, code, signal)
    return PodExited(code, signal, cause, reason)


def _external_cause(pod: Pod, terminated: Pod) -> tuple[str, str]:
    """The cause and the reason if the pod was taken away; "" if its container ended by itself."""
    cause, disruption = _disruption_cause(pod)
    if cause:
        return cause, disruption
    status = pod.get("status", {})
    reason, message = status.get("reason", ""), status.get("message", "")
    if reason:
        return _STATUS_REASONS.get(reason, EVICTED), _join_reason(reason, message)
    if "deletionTimestamp" in pod["metadata"] and not _ended_before_deletion(pod, terminated):
        return DELETED, "the pod was deleted"
    return "", ""


def _own_cause(pod: Pod, terminated: Pod, code: int | None, signal: int | None) -> tuple[str, str]:
    reason, message = terminated.get("reason", ""), terminated.get("message", "")
    if reason == "OOMKilled":
        return OOM, f"out of memory (limit {_memory_limit(pod)})"
    if reason in _START_FAILURES:
        return IMAGE, _join_reason(reason, message)
    if not terminated:
        if pod.get("status", {}).get("phase") == "Succeeded":
            return COMPLETED, "completed"
        return UNKNOWN, "the pod failed without a reason"
    if code == 0:
        return COMPLETED, "completed"
    exit_status = f"killed by signal {signal}" if signal is not None else f"exited with code {code}"
    return CRASHED, f"{exit_status}: {message}" if message else exit_status


def _code_and_signal(terminated: Pod) -> tuple[int | None, int | None]:
    if not terminated:
        return None, None
    code = int(terminated["exitCode"])
    if terminated.get("signal"):
        return None, int(terminated["signal"])
    return (None, code - 128) if code in _SIGNAL_CODES else (code, None)


def _disruption_cause(pod: Pod) -> tuple[str, str]:
    condition = _condition(pod, "DisruptionTarget")
    if condition.get("status") != "True":
        return "", ""
    reason = condition.get("reason", "")
    return _DISRUPTIONS.get(reason, EVICTED), _join_reason(reason, condition.get("message", ""))


def _is_on_lost_node(pod: Pod) -> bool:
    """Whether the pod is being deleted because its node is lost: no kubelet will ever report that it ended."""
    is_deleted = "deletionTimestamp" in pod["metadata"] and _disruption_cause(pod)[0] == NODE_LOST
    # A pod that the kubelet never saw has no such condition.
    return is_deleted and _condition(pod, "Ready").get("status") != "True"


def _ended_before_deletion(pod: Pod, terminated: Pod) -> bool:
    """Whether the container ended before its deletion was requested, so the deletion is not the cause."""
    if not terminated.get("finishedAt"):
        return False
    metadata = pod["metadata"]
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds", 0))
    # `deletionTimestamp` is when the deletion will be enforced; both are in whole seconds.
    return parse_time(terminated["finishedAt"]) < parse_time(metadata["deletionTimestamp"]) - grace


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
    return PodWaiting("the pod is waiting for a scheduler")


def _container(pod: Pod) -> Pod:
    """Our container, which is named as its role; others were added by an admission webhook."""
    containers, role = pod["spec"]["containers"], pod["metadata"].get("labels", {}).get(ROLE_LABEL)
    container: Pod = next((container for container in containers if container["name"] == role), containers[0])
    return container


def _container_state(pod: Pod) -> Pod:
    name = _container(pod)["name"]
    statuses = pod.get("status", {}).get("containerStatuses") or []
    state: Pod = next((status.get("state") or {} for status in statuses if status["name"] == name), {})
    return state


def _terminated_state(pod: Pod) -> Pod:
    terminated: Pod = _container_state(pod).get("terminated") or {}
    return terminated


def _condition(pod: Pod, type_: str) -> Pod:
    conditions = pod.get("status", {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == type_), {})


def _memory_limit(pod: Pod) -> str:
    limits = _container(pod).get("resources", {}).get("limits", {})
    return str(limits.get("memory", "of the node"))


def _join_reason(reason: str, message: str) -> str:
    return f"{reason}: {message}" if reason and message else reason or message


def parse_time(text: str) -> datetime:
    """Parse a time as Kubernetes writes it."""
    return datetime.fromisoformat(text)
