"""The master as a pod: its launcher is the Kubernetes API, its journal may lie there, and people look at it there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from elasticdl import signals
from elasticdl.checkpoint import output
from elasticdl.errors import ElasticDLError, SpecError, TransientError
from elasticdl.kube.api import Api
from elasticdl.kube.journal import ApiJournal
from elasticdl.kube.kinds import CONFIG_MAP, ELASTIC_JOB, STATEFUL_SET
from elasticdl.kube.pauses import pauses
from elasticdl.kube.probes import Answer, Probes
from elasticdl.kube.watching import Document, follow
from elasticdl.launcher import last_word, naming
from elasticdl.launcher.manifest import Owner
from elasticdl.launcher.pod_life import instant
from elasticdl.launcher.pods import PodLauncher
from elasticdl.master import events as ev
from elasticdl.master import farewell
from elasticdl.master.gathering import Gathered
from elasticdl.master.journal import Kept
from elasticdl.master.loop import Loop
from elasticdl.master.publishing import Home, Publisher
from elasticdl.master.replicas import parse
from elasticdl.spec import JobKind, JobSpec, WorkersSpec
from elasticdl.storage import probe
from elasticdl.storage.place import StorePath, open_place
from elasticdl.vital import VitalThread

CLOSE_S = 60.0  # how long a master that is over tries to say so before another one does
LEAVE_S = 20.0  # how long it waits for its pod to be deleted
# A loop without a turn for so long is ended by its kubelet. A journal waits a minute for an API server that is away.
SILENCE_S = 180.0
_log = logging.getLogger(__name__)


class Cluster:
    """All that the master of a job has to do with its cluster."""

    def __init__(self, spec: JobSpec) -> None:
        assert spec.cluster is not None
        self._spec = spec
        self._api = Api.connect(role=naming.MASTER)
        self._home = _home(self._api, spec, spec.cluster.namespace or self._api.namespace)
        self._publisher = Publisher(self._api, spec, self._home)
        self._stopped = threading.Event()

    @property
    def run(self) -> int:
        """The number of this run of the job: when its StatefulSet was created, in seconds."""
        return self._home.run

    def journal(self) -> Kept | None:
        """In the API, unless the job has a claim for it."""
        assert self._spec.cluster is not None
        if self._spec.cluster.state_claim:
            return None
        return ApiJournal(self._api, self._spec.name, self._home.namespace, self._home.master.reference, self.run)

    def check_places(self) -> None:
        """Raise SpecError where volumes or stores do not let the job write what shall stay: only a pod can see that."""
        spec = self._spec
        if spec.output and spec.keeps(spec.output):
            place = open_place(spec.output, probe.PROBE_S)
            if spec.kind is JobKind.TRAINING:
                output.check(place)
            if spec.kind is JobKind.PREDICTION:
                output.check_predictions(place)
                if isinstance(place, StorePath):
                    output.check_writable(place, "output (--output)")
        if spec.checkpoint.directory and spec.keeps(spec.checkpoint.directory):
            directory = open_place(spec.checkpoint.directory, probe.PROBE_S)
            output.check_writable(directory, "checkpoint.directory (--checkpoint_dir)")

    def attend(self, loop: Loop) -> list[asyncio.Task[None]]:
        """Launch, watch, publish, until the tasks are cancelled."""
        running = asyncio.get_running_loop()

        news = Gathered(loop.submit, running.call_later)

        def heard(document: dict[str, Any]) -> None:
            if (event := parse(document)) is not None:
                news.hear(event)

        running.add_signal_handler(signal.SIGTERM, lambda: running.create_task(self._taken_away(loop)))
        launcher = PodLauncher(self._api, self._spec, self._home.namespace, self._home.pods, heard)
        loop.performer.launcher = launcher
        self._probes = Probes(naming.HEALTH_PORT, lambda path: health(path, loop.silent_s))
        if self._home.resource is not None:
            arguments = (loop, lambda event: running.call_soon_threadsafe(loop.submit, event))
            VitalThread(self._follow_wishes, args=arguments, name="wishes").start()
        return [asyncio.create_task(launcher.run()), asyncio.create_task(self._publisher.run(loop))]

    async def close(self, loop: Loop) -> None:
        """The last word: the result, written down for those who come later."""
        self._stopped.set()
        deadline = loop.clock.now() + CLOSE_S
        for pause_s in pauses():
            await self._publisher.publish(loop)
            if self._publisher.has_result:
                return
            if loop.clock.now() > deadline:
                raise TransientError("the result of the job could not be written down; the next master tries again")
            await asyncio.sleep(pause_s)

    def leave(self) -> None:
        """No pod for this master any more, then wait to be ended.

        Who would end by itself would be started again before the controller has seen that it should not be.
        """
        signals.end_on_terminate()
        last_word.retire(self._api, self._spec.name, self._home.namespace)
        time.sleep(LEAVE_S)

    async def _taken_away(self, loop: Loop) -> None:
        home = self._home
        await farewell.leave(loop, lambda: farewell.is_last(self._api, home.master, home.namespace))
        signals.end()

    def _follow_wishes(self, loop: Loop, submit: Callable[[ev.Event], None]) -> None:
        """`kubectl scale` and `kubectl edit` change what the ElasticJob wishes for."""
        assert self._home.resource is not None
        only = f"metadata.name={self._home.resource.name}"  # a person's object: it need not have our labels
        for changes in follow(self._api, ELASTIC_JOB, self._home.namespace, "", self._stopped, fields=only):
            for before, after in changes:
                ledger = loop.state.job.ledger
                has = ev.ScaleAsked(ledger.wish, ledger.fleet.wish)
                if (asked := wished(before, after, self._spec.workers, has)) is not None:
                    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                        submit(asked)


def health(path: str, silent_s: float) -> Answer:
    """What the kubelet is told: whether the master's loop goes round, not only that there is a process."""
    if path != naming.HEALTH_PATH:
        return Answer(404, f"there is {naming.HEALTH_PATH}\n".encode())
    return Answer.of(f"the master's loop has had no turn for {silent_s:.0f} s" if silent_s > SILENCE_S else "")


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
    found = {
        kind: api.get(kind, name, namespace)
        for kind, name in ((STATEFUL_SET, naming.master_name(spec)), (CONFIG_MAP, naming.spec_name(spec)))
    }
    for kind, document in found.items():
        if document is None:
            raise SpecError(f"there is no {kind.kind} of job {spec.name} in namespace {namespace}: it has no place")
    master, pods = (
        Owner(kind.version, kind.kind, document["metadata"]["name"], document["metadata"]["uid"])
        for kind, document in found.items()
        if document is not None
    )
    owners = (found[STATEFUL_SET] or {})["metadata"].get("ownerReferences", [])
    resources = [one for one in owners if one["kind"] == ELASTIC_JOB.kind]
    resource = Owner(*(resources[0][key] for key in ("apiVersion", "kind", "name", "uid"))) if resources else None
    created = instant((found[STATEFUL_SET] or {})["metadata"]["creationTimestamp"])
    return Home(namespace, master, pods, resource, int(created.timestamp()))


def refuse(spec: JobSpec, problem: ElasticDLError) -> None:
    """Make a result of what cannot be: a master that only failed would be started again for ever."""
    assert spec.cluster is not None
    try:
        api = Api.connect(role=naming.MASTER)
        namespace = spec.cluster.namespace or api.namespace
        exit_code = SpecError.exit_code if isinstance(problem, SpecError) else ElasticDLError.exit_code
        last_word.refuse(api, spec.name, namespace, str(problem), exit_code)
    except ElasticDLError as exc:
        _log.error("it could not be written down: %s", exc)
