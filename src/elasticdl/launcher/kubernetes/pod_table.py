"""What the launcher knows of its pods, and what of it the master has been told. Pure: changes in, reports out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from elasticdl.launcher.interface import DelayedReport, ExitedProcess, ReplicasReport, Report, StartedReport
from elasticdl.launcher.kubernetes.naming import PS, REPLICA_LABEL, ROLE_LABEL, WORKER
from elasticdl.launcher.kubernetes.pod_status import (
    PodExited,
    PodRunning,
    PodStatus,
    PodWaiting,
    parse_time,
    read_pod_status,
)

Document = dict[str, Any]

POD_PID = 1  # of every replica in its pod
_STATUS_ORDER = {PodWaiting: 0, PodRunning: 1, PodExited: 2}


class PodTable:
    """Pods of one job and of one owner: an earlier job of the same name may have left some that are not ours."""

    def __init__(self, owner_uid: str) -> None:
        self._owner_uid = owner_uid
        self._pods: dict[str, Document] = {}  # that exist, by replica
        self._lives: dict[str, PodStatus] = {}
        self._nodes: dict[str, str] = {}  # of all that ever had one
        self._ended_at: dict[str, float] = {}

    def get_pod(self, replica: str) -> Document | None:
        return self._pods.get(replica)

    def nodes_of(self, replicas: Iterable[str]) -> list[str]:
        """Where these run, or ran."""
        return sorted({self._nodes[replica] for replica in replicas if replica in self._nodes})

    def living_pods(self) -> dict[str, Document]:
        return {name: pod for name, pod in self._pods.items() if not isinstance(self._lives[name], PodExited)}

    def surplus_pods(self, most: int) -> list[Document]:
        """Pods that ended, but for the `most` that ended last."""
        ended = sorted(set(self._pods) - set(self.living_pods()), key=lambda name: self._ended_at[name])
        return [self._pods[name] for name in ended[: max(0, len(ended) - most)]]

    def is_ours(self, pod: Document) -> bool:
        metadata = pod["metadata"]
        is_replica = metadata.get("labels", {}).get(ROLE_LABEL) in (WORKER, PS)
        return is_replica and any(one["uid"] == self._owner_uid for one in metadata.get("ownerReferences", []))

    def apply_change(self, before: Document | None, after: Document | None, now: float) -> list[Report]:
        """The reports that a change of one pod calls for."""
        one = after or before
        assert one is not None
        if not self.is_ours(one):
            return []
        replica = one["metadata"]["labels"][REPLICA_LABEL]
        if after is None:
            self._pods.pop(replica, None)
        else:
            self._pods[replica] = after
            if node := after["spec"].get("nodeName"):
                self._nodes[replica] = node
        return self._update_status(replica, read_pod_status(after, before), one, now)

    def mark_waiting(self, replica: str, why: str) -> list[Report]:
        """It has no pod yet, since `why`."""
        return self._update_status(replica, PodWaiting(why, is_trouble=True), None, 0.0)

    def mark_never_created(self, replica: str, number: int, now: float) -> list[Report]:
        """It was not wanted any more before it had a pod."""
        why = "it was not wanted any more before it had a pod"
        return self._update_status(replica, PodExited(None, number, "deleted", why), None, now)

    def replicas_report(self) -> ReplicasReport:
        """All there is, as every master hears it first. A pod that waits counts as running: it exists."""
        pods = self.living_pods()
        running = [StartedReport(name, POD_PID, _started_at(pod)) for name, pod in pods.items()]
        exited = [self._exited(name, life) for name, life in self._lives.items() if isinstance(life, PodExited)]
        return ReplicasReport(tuple(running), tuple(exited))

    def delay_reports(self) -> list[Report]:
        """The replicas that wait, and why."""
        return [self._report(name) for name, life in self._lives.items() if isinstance(life, PodWaiting)]

    def last_report(self, replica: str) -> list[Report]:
        """What was reported of it last, once more."""
        return [self._report(replica)] if replica in self._lives else []

    def _update_status(self, replica: str, life: PodStatus, pod: Document | None, now: float) -> list[Report]:
        known = self._lives.get(replica)
        if known is not None and (life == known or _STATUS_ORDER[type(life)] < _STATUS_ORDER[type(known)]):
            return []  # nothing comes back to life: what says so is older than what we know
        if isinstance(known, PodExited) or (isinstance(known, PodRunning) and isinstance(life, PodRunning)):
            return []
        self._lives[replica] = life
        if isinstance(life, PodExited):
            self._ended_at[replica] = _finished_at(pod, now)
        return [self._report(replica)]

    def _report(self, replica: str) -> Report:
        life = self._lives[replica]
        match life:
            case PodWaiting(why, is_trouble):
                return DelayedReport(replica, why, is_trouble)
            case PodRunning():
                return StartedReport(replica, POD_PID, _started_at(self._pods[replica]))
        return self._exited(replica, life)

    def _exited(self, replica: str, life: PodExited) -> ExitedProcess:
        at = self._ended_at[replica]
        return ExitedProcess(replica, POD_PID, life.code, life.signal, at, cause=life.cause, reason=life.why)


def _started_at(pod: Document) -> float:
    for one in pod.get("status", {}).get("containerStatuses") or []:
        if "running" in one.get("state", {}):
            return parse_time(one["state"]["running"]["startedAt"]).timestamp()
    return parse_time(pod["metadata"]["creationTimestamp"]).timestamp()


def _finished_at(pod: Document | None, now: float) -> float:
    for one in (pod or {}).get("status", {}).get("containerStatuses") or []:
        if finished := one.get("state", {}).get("terminated", {}).get("finishedAt"):
            return parse_time(finished).timestamp()
    return now
