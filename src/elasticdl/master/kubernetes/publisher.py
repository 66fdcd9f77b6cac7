"""Publishes the status of a job in a cluster: a ConfigMap, the ElasticJob, and its events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToJson

from elasticdl.errors import ElasticDLError
from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyExists, NotFound
from elasticdl.kube.kinds import ELASTIC_JOB, EVENT
from elasticdl.launcher.kubernetes import status_map
from elasticdl.launcher.kubernetes.manifest import Owner
from elasticdl.master.machine.actions import ROUTINE_KINDS, EventLogEntry
from elasticdl.master.machine.phase import FinalPhase
from elasticdl.master.runtime.loop import MasterLoop
from elasticdl.master.views import elastic_job, status
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobSpec

MIN_INTERVAL_S = 1.0  # between two writes of the status
# Of one job, however many workers it has: etcd keeps all versions of an object for minutes.
MAX_BYTES_PER_S = 16 << 10
MAX_EVENTS = 200
_log = logging.getLogger(__name__)


class JobOwners(NamedTuple):
    """The namespace and the owners of a job's objects."""

    namespace: str
    master: Owner  # the StatefulSet of the master
    pods: Owner  # the ConfigMap of the spec, which owns the pods of workers and ps
    resource: Owner | None  # the ElasticJob, if there is one
    run: int = 0  # when the StatefulSet was created, in seconds: another one for a job that is submitted again

    @property
    def event_target(self) -> Owner:
        """The object whose events users look at."""
        return self.resource or self.master


class StatusPublisher:
    """Writes the status of a job into its objects when it changes, at a limited rate."""

    def __init__(self, api: Api, spec: JobSpec, owners: JobOwners) -> None:
        self._api = api
        self._spec = spec
        self._owners = owners
        self._write_lock = asyncio.Lock()  # keeps the order of states
        self.has_result = False  # whether the result of the job is written
        self._routine_counts: Counter[str] = Counter()  # of routine events, by kind
        self._written_data: dict[str, str] = {}  # of the ConfigMap
        self._written_status: dict[str, Any] = {}  # of the ElasticJob
        self._reported_entries = 0  # entries of the event log that have an Event

    async def run(self, loop: MasterLoop) -> None:
        """Publishes until cancelled. Errors of the API are logged and do not disturb the job."""
        with loop.watch_changes() as changed:
            while True:
                changed.clear()
                await self.publish(loop)
                await asyncio.sleep(self.interval_s)
                await changed.wait()

    @property
    def interval_s(self) -> float:
        """How long to wait after the last write."""
        return max(MIN_INTERVAL_S, sum(map(len, self._written_data.values())) / MAX_BYTES_PER_S)

    async def publish(self, loop: MasterLoop) -> None:
        async with self._write_lock:
            await self._publish(loop)

    async def _publish(self, loop: MasterLoop) -> None:
        job, now = loop.machine.state, loop.clock.now()
        message = status.job_status(job, now)
        phase = job.ledger.phase
        result = status.job_result(job, phase) if isinstance(phase, FinalPhase) else None
        entries, entry_count = list(job.ledger.recent_entries), job.ledger.entry_count
        first = entry_count - len(entries) + 1  # the number of the oldest recent entry
        unreported = [(number, entry) for number, entry in enumerate(entries, first) if number > self._reported_entries]
        try:
            await asyncio.to_thread(self._write, message, result, entries, unreported)
            self._reported_entries = entry_count
        except ElasticDLError as exc:
            _log.warning("the status of the job could not be written: %s", exc)

    def _write(
        self,
        message: pb.JobStatus,
        result: dict[str, Any] | None,
        entries: Sequence[EventLogEntry],
        unreported: Iterable[tuple[int, EventLogEntry]],
    ) -> None:
        lines = "".join(json.dumps(entry.to_document()) + "\n" for entry in entries[-MAX_EVENTS:])
        data = {"status.json": MessageToJson(message), "events.jsonl": lines}
        if result is not None:
            data[status_map.RESULT_KEY] = json.dumps(result)
        if data != self._written_data:
            status_map.write_status(self._api, self._spec.name, self._owners.namespace, self._owners.master, data)
            self._written_data = data
        self.has_result = result is not None
        if (resource := self._owners.resource) is not None:
            job_status = elastic_job.elastic_job_status(message, result)
            if job_status != self._written_status:
                self._api.patch(ELASTIC_JOB, resource.name, {"status": job_status}, self._owners.namespace, "status")
                self._written_status = job_status
        for number, entry in unreported:
            with suppress(AlreadyExists):  # by the previous master
                self._create_event(number, entry)

    def _create_event(self, number: int, entry: EventLogEntry) -> None:
        """Creates an Event for this entry, or increases the count of a routine one."""
        self._routine_counts[entry.kind] += 1
        count = self._routine_counts[entry.kind] if entry.kind in ROUTINE_KINDS else 1
        event = elastic_job.event_document(self._owners.event_target, self._owners.namespace, number, entry, count)
        if count > 1:
            change = {key: event[key] for key in ("message", "lastTimestamp", "count")}
            with suppress(NotFound):  # the cluster deletes events after an hour
                self._api.patch(EVENT, event["metadata"]["name"], change, self._owners.namespace)
                return
        self._api.create(event)
