"""How a job on a cluster stands, by its objects alone: what its master wrote down, its Job, the master's pod."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from google.protobuf.json_format import Parse

from elasticdl.cli.reach import master_pod
from elasticdl.kube.api import Api
from elasticdl.kube.kinds import CONFIG_MAP, JOB
from elasticdl.launcher import pod_life
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec.directory import JobDirectory, write_private

Document = dict[str, Any]


class Standing(NamedTuple):
    written: dict[str, str]  # of the ConfigMap NAME-status; {}: nothing yet
    job: Document | None  # the Job of the master; None: deleted
    pod: Document | None  # the master's newest

    @classmethod
    def read(cls, api: Api, namespace: str, name: str) -> Standing:
        # The Job first: one that is over by then has written all it will.
        job = api.get(JOB, f"{name}-master", namespace)
        held = api.get(CONFIG_MAP, f"{name}-status", namespace) or {}
        return cls(held.get("data") or {}, job, master_pod(api, namespace, name))

    @property
    def told(self) -> pb.JobStatus | None:
        """As the master saw it last, a second ago or less while it runs."""
        text = self.written.get("status.json")
        return Parse(text, pb.JobStatus(), ignore_unknown_fields=True) if text else None

    @property
    def result(self) -> Document | None:
        text = self.written.get("result.json")
        found = json.loads(text) if text else None
        return found if isinstance(found, dict) else None

    @property
    def events(self) -> str:
        """The newest lines of the event log."""
        return self.written.get("events.jsonl", "")

    @property
    def is_over(self) -> bool:
        """Nobody will start the master again."""
        return self.job is None or bool(self._condition("Complete") or self._condition("Failed"))

    @property
    def has_failed(self) -> bool:
        return self.job is None or bool(self._condition("Failed"))

    @property
    def created_at(self) -> float:
        created = (self.job or {}).get("metadata", {}).get("creationTimestamp")
        return datetime.fromisoformat(created).timestamp() if created else 0.0

    @property
    def is_master_running(self) -> bool:
        return self.pod is not None and self.pod.get("status", {}).get("phase") == "Running"

    @property
    def why_away(self) -> str:
        """Why no master answers, in the words of Kubernetes."""
        if self.job is None:
            return "the job was deleted"
        if failed := self._condition("Failed"):
            return f"the master's Job failed: {failed.get('message') or failed.get('reason', '')}"
        if self.job.get("spec", {}).get("suspend"):
            return "its Job is suspended: it waits for its turn in a queue, or was suspended by someone"
        if self.pod is None:
            return "its master has no pod yet"
        match pod_life.read(self.pod, None):
            case pod_life.Waiting(why):
                return f"its master waits: {why}" if why else ""
            case pod_life.Exited(why=why):
                return f"its master ended and comes again: {why}" if why else ""
        return ""

    def write_into(self, directory: JobDirectory) -> None:
        """The files that a job on this machine would have."""
        if self.events:
            write_private(directory.events, self.events)
        if self.result is not None:
            write_private(directory.result, json.dumps(self.result))

    def _condition(self, kind: str) -> Document | None:
        conditions = (self.job or {}).get("status", {}).get("conditions") or []
        return next((one for one in conditions if one["type"] == kind and one["status"] == "True"), None)
