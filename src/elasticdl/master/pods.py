"""The master as a pod: its launcher is the Kubernetes API, its journal may lie there, and people look at it there."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from elasticdl.errors import SpecError
from elasticdl.kube.api import Api
from elasticdl.kube.journal import ApiJournal
from elasticdl.kube.kinds import ELASTIC_JOB, JOB
from elasticdl.kube.watching import Document, follow
from elasticdl.launcher.manifest import Owner
from elasticdl.launcher.pods import PodLauncher
from elasticdl.master import events as ev
from elasticdl.master.journal import Kept
from elasticdl.master.loop import Loop
from elasticdl.master.publishing import Home, Publisher
from elasticdl.master.replicas import parse
from elasticdl.spec import JobSpec, WorkersSpec

TERMINATED = 128 + signal.SIGTERM  # the exit code of a master that is to come back elsewhere


class Cluster:
    """All that the master of a job has to do with its cluster."""

    def __init__(self, spec: JobSpec) -> None:
        assert spec.cluster is not None
        self._spec = spec
        self._api = Api.connect()
        self._home = _home(self._api, spec, spec.cluster.namespace or self._api.namespace)
        self._publisher = Publisher(self._api, spec, self._home)
        self._stopped = threading.Event()

    def journal(self) -> Kept | None:
        """In the API, unless the job has a claim for it."""
        assert self._spec.cluster is not None
        if self._spec.cluster.state_claim:
            return None
        return ApiJournal(self._api, self._spec.name, self._home.namespace, self._home.job.reference)

    def attend(self, loop: Loop) -> list[asyncio.Task[None]]:
        """Launch, watch, publish, until the tasks are cancelled."""
        running = asyncio.get_running_loop()

        def heard(document: dict[str, Any]) -> None:
            if (event := parse(document)) is not None:
                loop.submit(event)

        launcher = PodLauncher(self._api, self._spec, self._home.namespace, self._home.job, heard)
        loop.performer.launcher = launcher
        if self._home.resource is not None:
            arguments = (loop, lambda event: running.call_soon_threadsafe(loop.submit, event))
            threading.Thread(target=self._follow_wishes, args=arguments, name="wishes", daemon=True).start()
        return [asyncio.create_task(launcher.run()), asyncio.create_task(self._publisher.run(loop))]

    async def close(self, loop: Loop) -> None:
        """The last word."""
        self._stopped.set()
        await self._publisher.publish(loop)

    def _follow_wishes(self, loop: Loop, submit: Callable[[ev.Event], None]) -> None:
        """`kubectl scale` and `kubectl edit` change what the ElasticJob wishes for."""
        assert self._home.resource is not None
        only = f"metadata.name={self._home.resource.name}"  # a person's object: it need not have our labels
        for changes in follow(self._api, ELASTIC_JOB, self._home.namespace, "", self._stopped, fields=only):
            for before, after in changes:
                ledger = loop.state.job.ledger
                has = ev.ScaleAsked(ledger.wish, ledger.fleet.wish)
                if (asked := wished(before, after, self._spec.workers, has)) is not None:
                    submit(asked)


def wished(
    before: Document | None, after: Document | None, limits: WorkersSpec, has: ev.ScaleAsked
) -> ev.ScaleAsked | None:
    """What an ElasticJob newly wishes for and the job, which `has` a wish already, can follow.

    Most changes are of its status, which we write ourselves: those are no wishes, or `elasticdl scale` would be
    undone a second later.
    """
    if after is None or (before is not None and _wishes(before) == _wishes(after)):
        return None
    workers, ps = _wishes(after)
    workers = workers if workers != has.workers and limits.min <= workers <= limits.max else 0
    ps = ps if has.ps and ps != has.ps else 0
    return ev.ScaleAsked(workers, ps) if workers or ps else None


def _wishes(resource: Document) -> tuple[int, int]:
    workers, ps = (int(resource["spec"].get(role, {}).get("wish") or 0) for role in ("workers", "ps"))
    return workers, ps


def _home(api: Api, spec: JobSpec, namespace: str) -> Home:
    found = api.get(JOB, f"{spec.name}-master", namespace)
    if found is None:
        raise SpecError(f"there is no Job {spec.name}-master in namespace {namespace}: its master has no place")
    metadata = found["metadata"]
    job = Owner("batch/v1", "Job", metadata["name"], metadata["uid"])
    resources = [one for one in metadata.get("ownerReferences", []) if one["kind"] == ELASTIC_JOB.kind]
    resource = Owner(*(resources[0][key] for key in ("apiVersion", "kind", "name", "uid"))) if resources else None
    return Home(namespace, job, resource)


def leave_on_sigterm() -> None:
    """Process 1 of a container does not die of a signal by itself; the journal has all there is to know."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))
