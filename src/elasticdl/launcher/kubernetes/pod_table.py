"""The pods of a launcher, and what was reported of them to the master. Pure: changes in, reports out."""

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
    """Pods of one job and one owner; those that an earlier job of the same name left behind are ignored."""

    def __init__(self, owner_uid: str) -> None:
        self._owner_uid = owner_uid
        self._pods: dict[str, Document] = {}  # existing ones, by replica
        self._statuses: dict[str, PodStatus] = {}
        self._nodes: dict[str, str] = {}  # of all replicas that ever had one
        self._ended_at: dict[str, float] = {}

    def get_pod(self, replica: str) -> Document | None:
        return self._pods.get(replica)

    def nodes_of(self, replicas: Iterable[str]) -> list[str]:
        """The nodes where these replicas run or ran."""
        return sorted({self._nodes[replica] for replica in replicas if replica in self._nodes})

    def living_pods(self) -> dict[str, Document]:
        return {name: pod for name, pod in self._pods.items() if not isinstance(self._statuses[name], PodExited)}

    def surplus_pods(self, limit: int) -> list[Document]:
        """Pods that ended, except the `limit` that ended last."""
        ended = sorted(set(self._pods) - set(self.living_pods()), key=lambda name: self._ended_at[name])
        return [self._pods[name] for name in ended[: max(0, len(ended) - limit)]]

    def is_ours(self, pod: Document) -> bool:
        metadata = pod["metadata"]
        is_replica = metadata.get("labels", {}).get(ROLE_LABEL) in (WORKER, PS)
        return is_replica and any(owner["uid"] == self._owner_uid for owner in metadata.get("ownerReferences", []))

    def apply_change(self, before: Document | None, after: Document | None, now: float) -> list[Report]:
        """Record a change of one pod; returns the reports that it causes."""
        pod = after or before
        assert pod is not None
        if not self.is_ours(pod):
            return []
        replica = pod["metadata"]["labels"][REPLICA_LABEL]
        if after is None:
            self._pods.pop(replica, None)
        else:
            self._pods[replica] = after
            if node := after["spec"].get("nodeName"):
                self._nodes[replica] = node
        return self._update_status(replica, read_pod_status(after, before), pod, now)

    def mark_waiting(self, replica: str, reason: str) -> list[Report]:
        """Record that the replica has no pod yet, and the reason."""
        return self._update_status(replica, PodWaiting(reason, is_trouble=True), None, 0.0)

    def mark_never_created(self, replica: str, signal_number: int, now: float) -> list[Report]:
        """Record that the replica was stopped before it had a pod."""
        reason = "it was stopped before it had a pod"
        return self._update_status(replica, PodExited(None, signal_number, "deleted", reason), None, now)

    def replicas_report(self) -> ReplicasReport:
        """All replicas, the first report to every master. A pod that waits counts as running: it exists."""
        running = [StartedReport(name, POD_PID, _started_at(pod)) for name, pod in self.living_pods().items()]
        exited = [
            self._exited_process(name, status)
            for name, status in self._statuses.items()
            if isinstance(status, PodExited)
        ]
        return ReplicasReport(tuple(running), tuple(exited))

    def delay_reports(self) -> list[Report]:
        """A report of each replica that waits, with the reason."""
        return [self._report(name) for name, status in self._statuses.items() if isinstance(status, PodWaiting)]

    def last_report(self, replica: str) -> list[Report]:
        """The last report of a replica; none if there was none."""
        return [self._report(replica)] if replica in self._statuses else []

    def _update_status(self, replica: str, status: PodStatus, pod: Document | None, now: float) -> list[Report]:
        previous = self._statuses.get(replica)
        if previous is not None and (status == previous or _STATUS_ORDER[type(status)] < _STATUS_ORDER[type(previous)]):
            return []  # a pod never goes back to an earlier status: this news is older than what we know
        if isinstance(previous, PodExited) or (isinstance(previous, PodRunning) and isinstance(status, PodRunning)):
            return []
        self._statuses[replica] = status
        if isinstance(status, PodExited):
            self._ended_at[replica] = _finished_at(pod, now)
        return [self._report(replica)]

    def _report(self, replica: str) -> Report:
        status = self._statuses[replica]
        match status:
            case PodWaiting(reason, is_trouble):
                return DelayedReport(replica, reason, is_trouble)
            case PodRunning():
                return StartedReport(replica, POD_PID, _started_at(self._pods[replica]))
        return self._exited_process(replica, status)

    def _exited_process(self, replica: str, status: PodExited) -> ExitedProcess:
        return ExitedProcess(
            replica,
            POD_PID,
            status.code,
            status.signal,
            self._ended_at[replica],
            cause=status.cause,
            reason=status.reason,
        )


def _started_at(pod: Document) -> float:
    for container in pod.get("status", {}).get("containerStatuses") or []:
        if "running" in container.get("state", {}):
            return parse_time(container["state"]["running"]["startedAt"]).timestamp()
    return parse_time(pod["metadata"]["creationTimestamp"]).timestamp()


def _finished_at(pod: Document | None, now: float) -> float:
    for container in (pod or {}).get("status", {}).get("containerStatuses") or []:
        if finished_at := container.get("state", {}).get("terminated", {}).get("finishedAt"):
            return parse_time(finished_at).timestamp()
    return now
