"""The objects of a job on a cluster: its master's StatefulSet and pod, and the files that the master published."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from google.protobuf.json_format import Parse

from elasticdl.jobs.kubernetes.port_forward import newest_master_pod
from elasticdl.kube.api import Api
from elasticdl.kube.kinds import CONFIG_MAP, STATEFUL_SET
from elasticdl.launcher.kubernetes import pod_status
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec.directory import JobDirectory, write_private_file

Document = dict[str, Any]


class JobEnd(NamedTuple):
    phase: str  # succeeded, failed, stopped
    reason: str
    exit_code: int


class JobObjects(NamedTuple):
    status_files: dict[str, str]  # of the ConfigMap NAME-status; empty before the master writes it
    master_set: Document | None  # the master's StatefulSet; None: deleted
    master_pod: Document | None  # the newest pod of the master

    @classmethod
    def read(cls, api: Api, namespace: str, name: str) -> JobObjects:
        # The set first: once it is scaled to zero, the master has already written its result.
        master_set = api.get(STATEFUL_SET, f"{name}-master", namespace)
        status_map = api.get(CONFIG_MAP, f"{name}-status", namespace) or {}
        return cls(status_map.get("data") or {}, master_set, newest_master_pod(api, namespace, name))

    @property
    def last_status(self) -> pb.JobStatus | None:
        """The last status that the master published, at most a second old while it runs."""
        text = self.status_files.get("status.json")
        return Parse(text, pb.JobStatus(), ignore_unknown_fields=True) if text else None

    @property
    def result(self) -> Document | None:
        text = self.status_files.get("result.json")
        result = json.loads(text) if text else None
        return result if isinstance(result, dict) else None

    @property
    def event_log(self) -> str:
        """The newest lines of the event log."""
        return self.status_files.get("events.jsonl", "")

    @property
    def is_over(self) -> bool:
        """Whether the job has ended: it has a result, or was deleted."""
        return self.master_set is None or self.result is not None

    @property
    def is_suspended(self) -> bool:
        """Whether the job has no pods, but can be resumed."""
        return (
            self.master_set is not None and self.result is None and not self.master_set.get("spec", {}).get("replicas")
        )

    @property
    def end(self) -> JobEnd:
        """How a job that is over ended."""
        result = self.result
        if result is None:
            return JobEnd("failed", self.unreachable_reason, 1)
        return JobEnd(str(result["phase"]), str(result.get("reason", "")), int(result["exit_code"]))

    @property
    def created_at(self) -> float:
        created = (self.master_set or {}).get("metadata", {}).get("creationTimestamp")
        return datetime.fromisoformat(created).timestamp() if created else 0.0

    @property
    def is_master_running(self) -> bool:
        return self.master_pod is not None and self.master_pod.get("status", {}).get("phase") == "Running"

    @property
    def unreachable_reason(self) -> str:
        """Why the master cannot be reached; "" if unknown."""
        if self.master_set is None:
            return "the job was deleted"
        if self.result is not None:
            return f"the job is over: {self.end.reason or self.end.phase}"
        if self.is_suspended:
            return "it is suspended: its StatefulSet has no pods"
        if self.master_pod is None:
            return "its master has no pod yet"
        match pod_status.read_pod_status(self.master_pod, None):
            case pod_status.PodWaiting(reason):
                return f"its master waits: {reason}" if reason else ""
            case pod_status.PodExited(reason=reason):
                return f"its master ended and is restarted: {reason}" if reason else ""
        return ""

    def write_files(self, directory: JobDirectory) -> None:
        """Write the event log and the result to `directory`, as a local job does."""
        if self.event_log:
            write_private_file(directory.events, self.event_log)
        if self.result is not None:
            write_private_file(directory.result, json.dumps(self.result))
