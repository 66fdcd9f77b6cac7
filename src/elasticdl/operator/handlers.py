"""When the operator looks at a job: kopf tells of every change, `reconcile` does the rest.

Events, not kopf's create/update/resume: those keep their progress in annotations of each resource, and `reconcile`
needs no progress. What cannot change what a look would do is not looked at: a status alone (masters write one a
second), and most of what its controller says of a StatefulSet.
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
from elasticdl.operator.context import Document, MasterSnapshot, ObjectConflict, ReportEvent, master_snapshot
from elasticdl.operator.reconcile import reconcile

RETRY_S = 2.0
ERROR_RETRY_S = 30.0  # a right or a quota is missing: somebody has to do something

logger = logging.getLogger(__name__)


class EndlessBackoffs:
    """Pauses between attempts of kopf's own calls: an API server may be away for as long as it likes."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1.0, 2.0)
        while True:
            yield 3.0


class LastReconcile(NamedTuple):
    """What a look found of a job, and how it left its master."""

    spec: tuple[str, int]  # uid and generation of the ElasticJob
    master: MasterSnapshot | None


class Handlers:
    """The handlers of one term of leading."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._seen: dict[tuple[str, str], LastReconcile] = {}  # by the last look at each job
        self._phases: dict[str, str] = {}
        health.JOBS.clear()  # of an earlier term
        self.registry = kopf.OperatorRegistry()
        kopf.on.login(registry=self.registry)(kopf.login_via_client)
        kopf.on.startup(registry=self.registry)(self.wait_until_served)
        group = kinds.ELASTIC_JOB.api_version
        kopf.on.event(group, kinds.ELASTIC_JOB.plural, registry=self.registry)(self.on_job_changed)
        is_master = {naming.ROLE_LABEL: naming.MASTER}
        kopf.on.event(
            kinds.STATEFUL_SET.api_version, kinds.STATEFUL_SET.plural, labels=is_master, registry=self.registry
        )(self.on_master_changed)

    async def wait_until_served(self, **_: Any) -> None:
        """Wait until the API server names what we watch: kopf asks once, and one that just started may forget some."""
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
            for known in (self._locks, self._seen):
                known.pop((metadata["namespace"], metadata["name"]), None)
        else:
            spec = (metadata["uid"], metadata["generation"])
            await self._reconcile_until_done(metadata["namespace"], metadata["name"], lambda seen: seen.spec == spec)

    async def on_master_changed(self, type: str | None, body: kopf.Body, **_: Any) -> None:
        metadata = body["metadata"]
        heard = (
            None if type == "DELETED" else master_snapshot(cast(Document, body))
        )  # None: not there, and none was seen
        for owner in metadata.get("ownerReferences", []):
            if owner["kind"] == kinds.ELASTIC_JOB.kind:
                await self._reconcile_until_done(
                    metadata["namespace"], owner["name"], lambda seen: seen.master == heard
                )

    async def _reconcile_until_done(self, namespace: str, name: str, is_known: Callable[[LastReconcile], bool]) -> None:
        """Until it went well; with what is there now, not with what the event said.

        Not at all, if what the event said `is_known` from the last look: asked when it is our turn, for one who waited
        for a look at the same job may have nothing to do any more.
        """
        loop = asyncio.get_running_loop()

        def say(resource: dict[str, Any], type: str, reason: str, message: str) -> None:
            logger.info("%s/%s: %s: %s", namespace, name, reason, message)
            about = kopf.Body(cast(Any, resource))
            loop.call_soon_threadsafe(lambda: kopf.event(about, type=type, reason=reason, message=message[:1000]))

        def look() -> LastReconcile | None:
            resource = self._api.get(kinds.ELASTIC_JOB, name, namespace)
            if resource is None:
                return None
            spec = (resource["metadata"]["uid"], resource["metadata"]["generation"])
            return LastReconcile(spec, master_snapshot(reconcile(self._api, resource, say)))

        last_warning = ""
        while True:
            try:
                async with self._locks[namespace, name]:
                    if (last := self._seen.get((namespace, name))) is not None and is_known(last):
                        return
                    with health.RECONCILE_S.time(), health.RUNNING_RECONCILES.track(f"{namespace}/{name}"):
                        seen = await asyncio.to_thread(look)
                    if seen is not None:
                        self._seen[namespace, name] = seen
                health.RECONCILES.labels("done").inc()
                return
            except TransientError as exc:
                health.RECONCILES.labels("again").inc()
                logger.info("%s/%s: again in %g s: %s", namespace, name, RETRY_S, exc)
                if isinstance(exc, ObjectConflict):
                    last_warning = await self._warn(namespace, name, str(exc), last_warning, say)
                await asyncio.sleep(RETRY_S)
            except ElasticDLError as exc:
                health.RECONCILES.labels("failed").inc()
                logger.error("%s/%s: again in %g s: %s", namespace, name, ERROR_RETRY_S, exc)
                last_warning = await self._warn(namespace, name, str(exc), last_warning, say)
                await asyncio.sleep(ERROR_RETRY_S)

    async def _warn(self, namespace: str, name: str, why: str, last_warning: str, say: ReportEvent) -> str:
        """An event for what holds the job up, once for each reason."""
        if why != last_warning:
            with suppress(ElasticDLError):
                resource = await asyncio.to_thread(self._api.get, kinds.ELASTIC_JOB, name, namespace)
                if resource is not None:
                    say(resource, "Warning", "ReconcileBlocked", why)
        return why

    def _count_phase(self, uid: str, phase: str | None) -> None:
        """Only what changed: masters write a status every second, and there may be thousands of them."""
        was, now = self._phases.pop(uid, None), None if phase is None else phase or "New"
        if now is not None:
            self._phases[uid] = now
        if was != now:
            for counted_phase, step in ((was, -1), (now, 1)):
                if counted_phase is not None:
                    health.JOBS.labels(counted_phase).inc(step)


def kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = EndlessBackoffs()
    settings.networking.request_timeout = 15.0
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10.0
    settings.posting.reporting_component = "elasticdl-operator"
    settings.posting.event_name_prefix = "elasticdl-"
    settings.scanning.disabled = True  # `served` waits for what we watch
    return settings
