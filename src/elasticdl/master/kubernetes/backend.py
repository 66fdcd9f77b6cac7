"""The master in a cluster: launches pods, publishes the status, follows the ElasticJob, answers probes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable

from elasticdl import signals
from elasticdl.checkpoint import export_target
from elasticdl.errors import ElasticDLError, SpecError, TransientError
from elasticdl.kube.api import Api
from elasticdl.kube.kinds import CONFIG_MAP, ELASTIC_JOB, STATEFUL_SET
from elasticdl.kube.probes import HttpResponse, ProbeServer
from elasticdl.kube.watch import Document, follow_changes
from elasticdl.launcher.interface import Report
from elasticdl.launcher.kubernetes import naming, status_map
from elasticdl.launcher.kubernetes.manifest import Owner
from elasticdl.launcher.kubernetes.pod_launcher import PodLauncher
from elasticdl.launcher.kubernetes.pod_status import parse_time
from elasticdl.master.kubernetes import shutdown
from elasticdl.master.kubernetes.journal import ConfigMapJournal
from elasticdl.master.kubernetes.publisher import JobOwners, StatusPublisher
from elasticdl.master.machine import events as ev
from elasticdl.master.runtime.journal import JournalStore
from elasticdl.master.runtime.launcher_link import event_from_report
from elasticdl.master.runtime.loop import MasterLoop
from elasticdl.retry import backoff_delays
from elasticdl.spec import JobKind, JobSpec, WorkersSpec
from elasticdl.storage import probe
from elasticdl.storage.paths import StorePath, parse_path
from elasticdl.vital import VitalThread

PUBLISH_RESULT_TIMEOUT_S = 60.0  # how long a master that is over tries to say so before another one does
DELETION_WAIT_S = 20.0  # how long it waits for its pod to be deleted
# A loop without a turn for so long is ended by its kubelet. A journal waits a minute for an API server that is away.
MAX_LOOP_SILENCE_S = 180.0
_log = logging.getLogger(__name__)


class KubernetesBackend:
    """All that the master of a job has to do with its cluster."""

    def __init__(self, spec: JobSpec, api: Api, owners: JobOwners) -> None:
        self._spec = spec
        self._api = api
        self._home = owners
        self._publisher = StatusPublisher(api, spec, owners)
        self._stopped = threading.Event()

    @classmethod
    def connect(cls, spec: JobSpec) -> KubernetesBackend:
        """Connect to the API server, and find the objects of the job. SpecError where there are none."""
        assert spec.cluster is not None
        api = Api.connect(role=naming.MASTER)
        return cls(spec, api, _find_job_owners(api, spec, spec.cluster.namespace or api.namespace))

    @property
    def run(self) -> int:
        """The number of this run of the job: when its StatefulSet was created, in seconds."""
        return self._home.run

    def journal(self) -> JournalStore | None:
        """In the API, unless the job has a claim for it."""
        assert self._spec.cluster is not None
        if self._spec.cluster.journal_claim:
            return None
        return ConfigMapJournal(self._api, self._spec.name, self._home.namespace, self._home.master.reference, self.run)

    def check_output_places(self) -> None:
        """Raise SpecError where volumes or stores do not let the job write what shall stay: only a pod can see that."""
        spec = self._spec
        if spec.output and spec.is_durable(spec.output):
            place = parse_path(spec.output, probe.PROBE_S)
            if spec.kind is JobKind.TRAINING:
                export_target.check_export_target(place)
            if spec.kind is JobKind.PREDICTION:
                export_target.check_predictions_target(place)
                if isinstance(place, StorePath):
                    export_target.check_writable(place, "output (--output)")
        if spec.checkpoint.directory and spec.is_durable(spec.checkpoint.directory):
            directory = parse_path(spec.checkpoint.directory, probe.PROBE_S)
            export_target.check_writable(directory, "checkpoint.directory (--checkpoint_dir)")

    def start(self, loop: MasterLoop) -> list[asyncio.Task[None]]:
        """Launch, watch, publish, until the tasks are cancelled."""
        running = asyncio.get_running_loop()

        news = EventBatcher(loop.submit, running.call_later)

        def on_report(report: Report) -> None:
            if (event := event_from_report(report)) is not None:
                news.add(event)

        running.add_signal_handler(signal.SIGTERM, lambda: running.create_task(self._on_terminate(loop)))
        launcher = PodLauncher(self._api, self._spec, self._home.namespace, self._home.pods, on_report)
        loop.executor.attach_launcher(launcher)
        ProbeServer(naming.HEALTH_PORT, lambda path: answer_probe(path, loop.since_last_turn_s)).start()
        if self._home.resource is not None:
            arguments = (loop, lambda event: running.call_soon_threadsafe(loop.submit, event))
            VitalThread(self._follow_scale_changes, args=arguments, name="scale-changes").start()
        return [asyncio.create_task(launcher.run()), asyncio.create_task(self._publisher.run(loop))]

    async def publish_result(self, loop: MasterLoop) -> None:
        """The last word: the result, written down for those who come later."""
        self._stopped.set()
        deadline = loop.clock.now() + PUBLISH_RESULT_TIMEOUT_S
        for pause_s in backoff_delays():
            await self._publisher.publish(loop)
            if self._publisher.has_result:
                return
            if loop.clock.now() > deadline:
                raise TransientError("the result of the job could not be written down; the next master tries again")
            await asyncio.sleep(pause_s)

    def retire(self) -> None:
        """No pod for this master any more, then wait to be ended.

        Who would end by itself would be started again before the controller has seen that it should not be.
        """
        signals.exit_on_sigterm()
        status_map.retire_master(self._api, self._spec.name, self._home.namespace)
        time.sleep(DELETION_WAIT_S)

    async def _on_terminate(self, loop: MasterLoop) -> None:
        home = self._home
        await shutdown.release_replicas(loop, lambda: shutdown.is_last_master(self._api, home.master, home.namespace))
        signals.exit_as_terminated()

    def _follow_scale_changes(self, loop: MasterLoop, submit: Callable[[ev.Event], None]) -> None:
        """Follow changes of the ElasticJob by `kubectl scale` and `kubectl edit`."""
        assert self._home.resource is not None
        only = f"metadata.name={self._home.resource.name}"  # a person's object: it need not have our labels
        for changes in follow_changes(self._api, ELASTIC_JOB, self._home.namespace, "", self._stopped, fields=only):
            for before, after in changes:
                ledger = loop.machine.state.ledger
                has = ev.ScaleRequested(ledger.desired_workers, ledger.fleet.desired)
                if (asked := find_scale_request(before, after, self._spec.workers, has)) is not None:
                    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                        submit(asked)


def answer_probe(path: str, silent_s: float) -> HttpResponse:
    """What the kubelet is told: whether the master's loop goes round, not only that there is a process."""
    if path != naming.HEALTH_PATH:
        return HttpResponse(404, f"there is {naming.HEALTH_PATH}\n".encode())
    return HttpResponse.from_problem(
        f"the master's loop has had no turn for {silent_s:.0f} s" if silent_s > MAX_LOOP_SILENCE_S else ""
    )


def find_scale_request(
    before: Document | None, after: Document | None, limits: WorkersSpec, has: ev.ScaleRequested
) -> ev.ScaleRequested | None:
    """The part of a change of an ElasticJob that a job which `has` so many workers and ps can follow.

    Most changes are of its status, which the master writes itself: they request nothing, or `elasticdl scale` would be
    undone a second later.
    """
    if after is None or (before is not None and _desired_counts(before) == _desired_counts(after)):
        return None
    workers, ps = _desired_counts(after)
    workers = workers if workers != has.workers and limits.min <= workers <= limits.max else 0
    ps = ps if has.ps and ps != has.ps else 0
    return ev.ScaleRequested(workers, ps) if workers or ps else None


def _desired_counts(resource: Document) -> tuple[int, int]:
    workers, ps = (int(resource["spec"].get(role, {}).get("replicas") or 0) for role in ("workers", "ps"))
    return workers, ps


def _find_job_owners(api: Api, spec: JobSpec, namespace: str) -> JobOwners:
    found = {
        kind: api.get(kind, name, namespace)
        for kind, name in ((STATEFUL_SET, naming.master_name(spec)), (CONFIG_MAP, naming.spec_name(spec)))
    }
    for kind, document in found.items():
        if document is None:
            raise SpecError(f"there is no {kind.kind} of job {spec.name} in namespace {namespace}: it has no place")
    master, pods = (
        Owner(kind.api_version, kind.kind, document["metadata"]["name"], document["metadata"]["uid"])
        for kind, document in found.items()
        if document is not None
    )
    owners = (found[STATEFUL_SET] or {})["metadata"].get("ownerReferences", [])
    resources = [one for one in owners if one["kind"] == ELASTIC_JOB.kind]
    resource = Owner(*(resources[0][key] for key in ("apiVersion", "kind", "name", "uid"))) if resources else None
    created = parse_time((found[STATEFUL_SET] or {})["metadata"]["creationTimestamp"])
    return JobOwners(namespace, master, pods, resource, int(created.timestamp()))


def publish_refusal(spec: JobSpec, problem: ElasticDLError) -> None:
    """Make a result of what cannot be: a master that only failed would be started again for ever."""
    assert spec.cluster is not None
    try:
        api = Api.connect(role=naming.MASTER)
        namespace = spec.cluster.namespace or api.namespace
        exit_code = SpecError.exit_code if isinstance(problem, SpecError) else ElasticDLError.exit_code
        status_map.write_refusal(api, spec.name, namespace, str(problem), exit_code)
    except ElasticDLError as exc:
        _log.error("it could not be written down: %s", exc)


BATCH_DELAY_S = 0.5

CallLater = Callable[[float, Callable[[], None]], object]  # as `call_later` of an event loop


class EventBatcher:
    """Submits events of pods that need no hurry together: each turn of the master is a write of its journal.

    A job of fifty workers hears a hundred times in a few seconds that a pod waits, and then that it runs. Nothing
    depends on that: a worker that runs connects by itself. The end of a pod, or trouble, is submitted at once, and all
    that came before it first, so the order stays.
    """

    def __init__(self, submit: Callable[[ev.Event], None], later: CallLater, calm_s: float = BATCH_DELAY_S) -> None:
        self._submit = submit
        self._later = later
        self._calm_s = calm_s
        self._events: list[ev.Event] = []

    def add(self, event: ev.Event) -> None:
        is_calm = isinstance(event, ev.ReplicaStarted) or (
            isinstance(event, ev.ReplicaDelayed) and not event.is_trouble
        )
        self._events.append(event)
        if not is_calm:
            self._flush()
        elif len(self._events) == 1:
            self._later(self._calm_s, self._flush)

    def _flush(self) -> None:
        events, self._events = self._events, []
        for event in events:
            self._submit(event)
