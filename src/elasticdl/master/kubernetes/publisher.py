"""Publishes the status of a job in a cluster: a ConfigMap, the ElasticJob, and its events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable
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

MIN_INTERVAL_S = 1.0  # at most
# And no more than this of a job, however many workers it has: the cluster's store keeps all versions for minutes.
MAX_BYTES_PER_S = 16 << 10
MAX_EVENTS = 200
_log = logging.getLogger(__name__)


class JobOwners(NamedTuple):
    """Where the objects of a job lie and whose they are."""

    namespace: str
    master: Owner  # the StatefulSet of the master
    pods: Owner  # the ConfigMap with the job's description: to it belong the pods of workers and ps
    resource: Owner | None  # the ElasticJob, where there is one
    run: int = 0  # when the StatefulSet was created, in seconds: a job that is submitted again has another

    @property
    def event_target(self) -> Owner:
        """What a person looks at."""
        return self.resource or self.master


class StatusPublisher:
    def __init__(self, api: Api, spec: JobSpec, home: JobOwners) -> None:
        self._api = api
        self._spec = spec
        self._home = home
        self._writing = asyncio.Lock()  # what was seen first is written first
        self.has_result = False  # whether the end is written down
        self._repeats: Counter[str] = Counter()
        self._data: dict[str, str] = {}  # as it was written last
        self._shown: dict[str, Any] = {}
        self._told = 0  # entries of the event log that are events of the object

    async def run(self, loop: MasterLoop) -> None:
        """Until cancelled. Whatever the API says, the job goes on."""
        with loop.watch_changes() as changed:
            while True:
                changed.clear()
                await self.publish(loop)
                await asyncio.sleep(self.interval_s)
                await changed.wait()

    @property
    def interval_s(self) -> float:
        """How long to be quiet after what was written last."""
        return max(MIN_INTERVAL_S, sum(map(len, self._data.values())) / MAX_BYTES_PER_S)

    async def publish(self, loop: MasterLoop) -> None:
        async with self._writing:
            await self._publish(loop)

    async def _publish(self, loop: MasterLoop) -> None:
        job, now = loop.machine.state, loop.clock.now()
        seen = status.job_status(job, now)
        phase = job.ledger.phase
        result = status.job_result(job, phase) if isinstance(phase, FinalPhase) else None
        recent, count = list(job.ledger.recent_entries), job.ledger.entry_count
        first = count - len(recent) + 1  # the number of the oldest that is still known
        untold = [(number, entry) for number, entry in enumerate(recent, first) if number > self._told]
        try:
            await asyncio.to_thread(self._write, seen, result, recent, untold)
            self._told = count
        except ElasticDLError as exc:
            _log.warning("how the job stands could not be written down: %s", exc)

    def _write(
        self,
        seen: pb.JobStatus,
        result: dict[str, Any] | None,
        recent: Iterable[EventLogEntry],
        untold: Iterable[tuple[int, EventLogEntry]],
    ) -> None:
        lines = "".join(json.dumps(entry.to_document()) + "\n" for entry in list(recent)[-MAX_EVENTS:])
        data = {"status.json": MessageToJson(seen), "events.jsonl": lines}
        if result is not None:
            data[status_map.RESULT_KEY] = json.dumps(result)
        if data != self._data:
            status_map.write_status(self._api, self._spec.name, self._home.namespace, self._home.master, data)
            self._data = data
        self.has_result = result is not None
        if self._home.resource is not None and (shown := elastic_job.elastic_job_status(seen, result)) != self._shown:
            change = {"status": shown}
            self._api.patch(ELASTIC_JOB, self._home.resource.name, change, self._home.namespace, "status")
            self._shown = shown
        for number, entry in untold:
            with suppress(AlreadyExists):  # the master before this one told it
                self._create_event(number, entry)

    def _create_event(self, number: int, entry: EventLogEntry) -> None:
        """Create an Event for this entry, or count a routine one once more."""
        self._repeats[entry.kind] += 1
        repeats = self._repeats[entry.kind] if entry.kind in ROUTINE_KINDS else 1
        event = elastic_job.event_document(self._home.event_target, self._home.namespace, number, entry, repeats)
        if repeats > 1:
            news = {key: event[key] for key in ("message", "lastTimestamp", "count")}
            with suppress(NotFound):  # the cluster forgets events after an hour
                self._api.patch(EVENT, event["metadata"]["name"], news, self._home.namespace)
                return
        self._api.create(event)
