"""Decides when a job is reconciled: kopf reports every change of an ElasticJob and of a master's StatefulSet.

The handlers are kopf's event handlers, not its create/update/resume handlers: those keep their progress in annotations
of each resource, which `reconcile` does not need. Changes that cannot change what `reconcile` does are skipped: those
of a status alone (a master writes one a second), and most changes of a StatefulSet's status.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, cast

import kopf

from elasticdl.errors import ElasticDLError, TransientError
from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.launcher.kubernetes import naming
from elasticdl.operator import health
from elasticdl.operator.context import Document, MasterSnapshot, ObjectConflict, master_snapshot
from elasticdl.operator.reconcile import reconcile

RETRY_S = 2.0
ERROR_RETRY_S = 30.0  # a missing right or quota has to be granted first

logger = logging.getLogger(__name__)


class EndlessBackoffs:
    """Delays between attempts of kopf's own calls, without end: an API server may be unavailable for hours."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1.0, 2.0)
        while True:
            yield 3.0


class LastReconcile(NamedTuple):
    """What the last reconciliation of a job read of it, and the master that it left behind."""

    spec: tuple[str, int]  # uid and generation of the ElasticJob
    master: MasterSnapshot | None


class Handlers:
    """kopf's event handlers, from one election as the leader to its end."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._last_reconciles: dict[tuple[str, str], LastReconcile] = {}  # by namespace and name, as the locks
        self._phases: dict[str, str] = {}  # by uid

    def kopf_registry(self) -> kopf.OperatorRegistry:
        """Registers the handlers with kopf, and counts jobs from zero."""
        health.JOBS.clear()
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(kopf.login_via_client)
        kopf.on.startup(registry=registry)(self.wait_until_served)
        job, master = kinds.ELASTIC_JOB, kinds.STATEFUL_SET
        kopf.on.event(job.api_version, job.plural, registry=registry)(self.on_job_changed)
        master_labels = {naming.ROLE_LABEL: naming.MASTER}
        kopf.on.event(master.api_version, master.plural, labels=master_labels, registry=registry)(
            self.on_master_changed
        )
        return registry

    async def wait_until_served(self, **_: Any) -> None:
        """Waits until the API server lists the kinds that are watched: kopf reads that list only once.

        An API server that has just started may not list all of them yet.
        """
        for kind in (kinds.STATEFUL_SET, kinds.ELASTIC_JOB):
            while not await asyncio.to_thread(self._is_served, kind):
                logger.warning("the cluster does not serve %s of %s; see deploy/crd", kind.plural, kind.api_version)
                await asyncio.sleep(RETRY_S)

    def _is_served(self, kind: kinds.ResourceKind) -> bool:
        try:
            return self._api.serves(kind)
        except TransientError as exc:
            logger.warning("%s", exc)
            return False

    async def on_job_changed(self, type: str | None, body: kopf.Body, **_: Any) -> None:
        metadata = body["metadata"]
        self._count_phase(metadata["uid"], None if type == "DELETED" else body.get("status", {}).get("phase", ""))
        if type == "DELETED":
            for by_job in (self._locks, self._last_reconciles):
                by_job.pop((metadata["namespace"], metadata["name"]), None)
        else:
            spec = (metadata["uid"], metadata["generation"])
            await self._reconcile_until_done(metadata["namespace"], metadata["name"], lambda last: last.spec == spec)

    async def on_master_changed(self, type: str | None, body: kopf.Body, **_: Any) -> None:
        metadata = body["metadata"]
        master = None if type == "DELETED" else master_snapshot(cast(Document, body))
        for owner in metadata.get("ownerReferences", []):
            if owner["kind"] == kinds.ELASTIC_JOB.kind:
                await self._reconcile_until_done(
                    metadata["namespace"], owner["name"], lambda last: last.master == master
                )

    async def _reconcile_until_done(
        self, namespace: str, name: str, is_handled: Callable[[LastReconcile], bool]
    ) -> None:
        """Reconciles the job's current state until that succeeds.

        Does nothing if the change `is_handled` by the last reconciliation. This is checked under the job's lock: while
        this call waited for it, another one may have handled the change.
        """
        loop = asyncio.get_running_loop()
        last_warning = ""

        def report(resource: Document, type: str, reason: str, message: str) -> None:
            logger.info("%s/%s: %s: %s", namespace, name, reason, message)
            body = kopf.Body(cast(Any, resource))
            loop.call_soon_threadsafe(lambda: kopf.event(body, type=type, reason=reason, message=message[:1000]))

        def reconcile_once() -> LastReconcile | None:
            resource = self._api.get(kinds.ELASTIC_JOB, name, namespace)
            if resource is None:
                return None
            spec = (resource["metadata"]["uid"], resource["metadata"]["generation"])
            return LastReconcile(spec, master_snapshot(reconcile(self._api, resource, report)))

        async def warn(problem: str) -> None:
            """Creates an event about a problem, but not again while the problem stays the same."""
            nonlocal last_warning
            if problem != last_warning:
                with suppress(ElasticDLError):
                    resource = await asyncio.to_thread(self._api.get, kinds.ELASTIC_JOB, name, namespace)
                    if resource is not None:
                        report(resource, "Warning", "ReconcileBlocked", problem)
            last_warning = problem

        while True:
            try:
                async with self._locks[namespace, name]:
                    if (last := self._last_reconciles.get((namespace, name))) is not None and is_handled(last):
                        return
                    with health.RECONCILE_S.time(), health.RUNNING_RECONCILES.track(f"{namespace}/{name}"):
                        last = await asyncio.to_thread(reconcile_once)
                    if last is not None:
                        self._last_reconciles[namespace, name] = last
                health.RECONCILES.labels("done").inc()
                return
            except TransientError as exc:
                health.RECONCILES.labels("retried").inc()
                logger.info("%s/%s: trying again in %g s: %s", namespace, name, RETRY_S, exc)
                if isinstance(exc, ObjectConflict):
                    await warn(str(exc))
                await asyncio.sleep(RETRY_S)
            except ElasticDLError as exc:
                health.RECONCILES.labels("failed").inc()
                logger.error("%s/%s: trying again in %g s: %s", namespace, name, ERROR_RETRY_S, exc)
                await warn(str(exc))
                await asyncio.sleep(ERROR_RETRY_S)

    def _count_phase(self, uid: str, phase: str | None) -> None:
        """Counts a job under its new phase; None: it was deleted. Most events change no phase."""
        previous, current = self._phases.pop(uid, None), None if phase is None else phase or "New"
        if current is not None:
            self._phases[uid] = current
        if previous != current:
            for counted_phase, change in ((previous, -1), (current, 1)):
                if counted_phase is not None:
                    health.JOBS.labels(counted_phase).inc(change)


def kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = EndlessBackoffs()
    settings.networking.request_timeout = 15.0
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10.0
    settings.posting.reporting_component = "elasticdl-operator"
    settings.posting.event_name_prefix = "elasticdl-"
    settings.scanning.disabled = True  # `wait_until_served` waits for the kinds that are watched
    return settings
