"""How a job on a cluster stands, for those who cannot ask its master: a ConfigMap, the ElasticJob, and its events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToJson

from elasticdl.errors import ElasticDLError
from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyThere, NotThere
from elasticdl.kube.kinds import CONFIG_MAP, ELASTIC_JOB, EVENT
from elasticdl.launcher.manifest import Owner, labels
from elasticdl.master import status
from elasticdl.master.actions import Entry
from elasticdl.master.loop import Loop
from elasticdl.master.phase import Over
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobSpec

EVERY_S = 1.0  # at most
SHOWN_EVENTS = 200
_WARNINGS = ("worker-lost", "ps-lost", "failed", "worker-waits", "ps-waits", "memory-raised")
# Told over and over: one event with a count, or nobody would find the others among them.
_REPEATED = ("evaluation", "checkpoint")
_log = logging.getLogger(__name__)


class Home(NamedTuple):
    """Where the objects of a job lie and whose they are."""

    namespace: str
    job: Owner  # the batch Job of the master
    resource: Owner | None  # the ElasticJob, where there is one

    @property
    def shown(self) -> Owner:
        """What a person looks at."""
        return self.resource or self.job


class Publisher:
    def __init__(self, api: Api, spec: JobSpec, home: Home) -> None:
        self._api = api
        self._spec = spec
        self._home = home
        self._name = f"{spec.name}-status"
        self._made = False
        self._repeats: Counter[str] = Counter()
        self._told_until = 0.0  # by the master before this one
        self._told = 0  # entries of the event log that are events of the object

    async def run(self, loop: Loop) -> None:
        """Until cancelled. Whatever the API says, the job goes on."""
        with loop.changes() as changed:
            while True:
                changed.clear()
                await self.publish(loop)
                await asyncio.sleep(EVERY_S)
                await changed.wait()

    async def publish(self, loop: Loop) -> None:
        job, now = loop.state.job, loop.clock.now()
        seen = status.status(job, now)
        phase = job.ledger.phase
        result = status.result(job, phase) if isinstance(phase, Over) else None
        recent, count = list(job.ledger.recent), job.ledger.entries  # more may come while these are written
        entries = recent[-min(len(recent), count - self._told) :] if count > self._told else []
        try:
            await asyncio.to_thread(self._write, seen, result, recent, entries)
            self._told = count
        except ElasticDLError as exc:
            _log.warning("how the job stands could not be written down: %s", exc)

    def _write(
        self, seen: pb.JobStatus, result: dict[str, Any] | None, recent: Iterable[Entry], entries: Iterable[Entry]
    ) -> None:
        lines = "".join(json.dumps(entry._asdict()) + "\n" for entry in list(recent)[-SHOWN_EVENTS:])
        data = {"status.json": MessageToJson(seen), "events.jsonl": lines}
        if result is not None:
            data["result.json"] = json.dumps(result)
        if not self._made:
            self._make(data)
        else:
            self._api.patch(CONFIG_MAP, self._name, {"data": data}, self._home.namespace)
        if self._home.resource is not None:
            change = {"status": resource_status(seen, result)}
            self._api.patch(ELASTIC_JOB, self._home.resource.name, change, self._home.namespace, "status")
        for entry in entries:
            if entry.at > self._told_until:
                self._tell(entry)

    def _make(self, data: dict[str, str]) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self._name,
                "namespace": self._home.namespace,
                "labels": labels(self._spec, "status"),
                "ownerReferences": [self._home.job.reference],
            },
            "data": data,
        }
        try:
            self._api.create(document)
        except AlreadyThere:
            before = self._api.get(CONFIG_MAP, self._name, self._home.namespace) or {"data": {}}
            lines = before["data"].get("events.jsonl", "").splitlines()
            self._told_until = max((json.loads(line)["at"] for line in lines), default=0.0)
            self._api.patch(CONFIG_MAP, self._name, {"data": data}, self._home.namespace)
        self._made = True

    def _tell(self, entry: Entry) -> None:
        if entry.kind not in _REPEATED:
            self._api.create(self._event(entry))
            return
        event = self._event(entry, f"{self._spec.name}-{entry.kind}-{self._home.shown.uid[:8]}")
        self._repeats[entry.kind] += 1
        event["count"] = self._repeats[entry.kind]
        news = {name: event[name] for name in ("message", "lastTimestamp", "count")}
        name, namespace = event["metadata"]["name"], self._home.namespace
        try:
            self._api.patch(EVENT, name, news, namespace)
        except NotThere:  # the first, or the cluster has forgotten it
            self._api.create(event)

    def _event(self, entry: Entry, name: str = "") -> dict[str, Any]:
        shown = self._home.shown
        at = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        said = " ".join(word for word in (entry.worker, entry.reason) if word)
        called = {"name": name} if name else {"generateName": f"{self._spec.name}-"}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {**called, "namespace": self._home.namespace},
            "involvedObject": {
                "apiVersion": shown.api_version,
                "kind": shown.kind,
                "name": shown.name,
                "namespace": self._home.namespace,
                "uid": shown.uid,
            },
            "reason": "".join(part.capitalize() for part in entry.kind.split("-")),
            "message": said or entry.kind,
            "type": "Warning" if entry.kind in _WARNINGS else "Normal",
            "source": {"component": "elasticdl-master"},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }


_PHASES = {"pending": "Pending", "running": "Running", "stopping": "Stopping", "succeeded": "Succeeded"}
_PHASES |= {"failed": "Failed", "stopped": "Stopped"}


def resource_status(seen: pb.JobStatus, result: dict[str, Any] | None) -> dict[str, Any]:
    """The status of an ElasticJob, as `kubectl get` and `describe` show it."""
    ready = sum(worker.state in ("member", "finished") for worker in seen.workers)
    done, total = (seen.records, seen.total_records) if seen.total_records else (seen.step, seen.total_steps)
    document: dict[str, Any] = {
        "phase": _PHASES.get(seen.phase, seen.phase),
        "reason": seen.reason,
        "workers": {
            "ready": ready,
            "wanted": seen.wished_workers,
            "min": seen.min_workers,
            "max": seen.max_workers,
        },
        "workersText": f"{ready}/{seen.wished_workers} ({seen.min_workers}-{seen.max_workers})",
        "ps": {"ready": sum(one.state == "serving" for one in seen.ps), "wanted": seen.wished_ps},
        "step": seen.step,
        "total_steps": seen.total_steps,
        "records": seen.records,
        "total_records": seen.total_records,
        "progress": f"{100 * done // total} %" if total else "",
        "metric": _metric(seen),
        "startedAt": _time(seen.started_at),
        "selector": f"elasticdl.org/job={seen.name},elasticdl.org/role=worker",
    }
    if result is not None:
        document["finishedAt"] = _time(result["ended_at"])
    return document


def _metric(seen: pb.JobStatus) -> str:
    """One, and always the same: what the model measures itself by, else the loss."""
    names = sorted(seen.metrics, key=lambda name: (name == "loss", name))
    return f"{names[0]} {seen.metrics[names[0]]:.4g}" if names else ""


def _time(at: float) -> str | None:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None
