"""What a master does in a cluster: launches pods, publishes the status, follows the ElasticJob, answers probes."""

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

PUBLISH_RESULT_TIMEOUT_S = 60.0  # after which the next master tries to publish the result
DELETION_WAIT_S = 20.0  # for the deletion of the master's own pod
# The kubelet restarts a master whose loop has had no turn for this long. A journal waits a minute for the API server.
MAX_LOOP_SILENCE_S = 180.0
_log = logging.getLogger(__name__)


class KubernetesBackend:
    """Everything that the master of a job does with its cluster."""

    def __init__(self, spec: JobSpec, api: Api, owners: JobOwners) -> None:
        self._spec = spec
        self._api = api
        self._owners = owners
        self._publisher = StatusPublisher(api, spec, owners)
        self._stopped = threading.Event()

    @classmethod
    def connect(cls, spec: JobSpec) -> KubernetesBackend:
        """Connects to the API server and finds the job's objects. Raises SpecError if there are none."""
        assert spec.cluster is not None
        api = Api.connect(role=naming.MASTER)
        return cls(spec, api, _find_job_owners(api, spec, spec.cluster.namespace or api.namespace))

    @property
    def run(self) -> int:
        """The number of this run of the job: the creation time of its StatefulSet, in seconds."""
        return self._owners.run

    def journal(self) -> JournalStore | None:
        """The journal in ConfigMaps; None if the job has a claim for its journal."""
        assert self._spec.cluster is not None
        if self._spec.cluster.journal_claim:
            return None
        return ConfigMapJournal(
            self._api, self._spec.name, self._owners.namespace, self._owners.master.reference, self.run
        )

    def check_outputs(self) -> None:
        """Raises SpecError if volumes or object stores do not let the job write its outputs: only a pod can tell."""
        spec = self._spec
        if spec.output and spec.is_durable(spec.output):
            output = parse_path(spec.output, probe.PROBE_S)
            if spec.kind is JobKind.TRAINING:
                export_target.check_export_target(output)
            if spec.kind is JobKind.PREDICTION:
                export_target.check_predictions_target(output)
                if isinstance(output, StorePath):
                    export_target.check_writable(output, "output (--output)")
        if spec.checkpoint.directory and spec.is_durable(spec.checkpoint.directory):
            directory = parse_path(spec.checkpoint.directory, probe.PROBE_S)
            export_target.check_writable(directory, "checkpoint.directory (--checkpoint_dir)")

    def start(self, loop: MasterLoop) -> list[asyncio.Task[None]]:
        """Starts to launch pods, to follow the ElasticJob and to publish; the returned tasks run until cancelled."""
        event_loop = asyncio.get_running_loop()
        batcher = EventBatcher(loop.submit, event_loop.call_later)

        def on_report(report: Report) -> None:
            if (event := event_from_report(report)) is not None:
                batcher.add(event)

        event_loop.add_signal_handler(signal.SIGTERM, lambda: event_loop.create_task(self._on_terminate(loop)))
        launcher = PodLauncher(self._api, self._spec, self._owners.namespace, self._owners.pods, on_report)
        loop.executor.attach_launcher(launcher)
        ProbeServer(naming.HEALTH_PORT, lambda path: answer_probe(path, loop.since_last_turn_s)).start()
        if self._owners.resource is not None:
            arguments = (loop, lambda event: event_loop.call_soon_threadsafe(loop.submit, event))
            VitalThread(self._follow_scale_changes, args=arguments, name="scale-changes").start()
        return [asyncio.create_task(launcher.run()), asyncio.create_task(self._publisher.run(loop))]

    async def publish_result(self, loop: MasterLoop) -> None:
        """Publishes the result of the job. Raises TransientError if that fails for a minute."""
        self._stopped.set()
        deadline = loop.clock.now() + PUBLISH_RESULT_TIMEOUT_S
        for delay_s in backoff_delays():
            await self._publisher.publish(loop)
            if self._publisher.has_result:
                return
            if loop.clock.now() > deadline:
                raise TransientError("the result of the job could not be written; the next master tries again")
            await asyncio.sleep(delay_s)

    def retire(self) -> None:
        """Scales the master's StatefulSet to 0 and waits until its pod is deleted.

        If the process ended by itself, the kubelet would restart it before the controller has deleted the pod.
        """
        signals.exit_on_sigterm()
        status_map.retire_master(self._api, self._spec.name, self._owners.namespace)
        time.sleep(DELETION_WAIT_S)

    async def _on_terminate(self, loop: MasterLoop) -> None:
        owners = self._owners
        await shutdown.release_replicas(
            loop, lambda: shutdown.is_last_master(self._api, owners.master, owners.namespace)
        )
        signals.exit_as_terminated()

    def _follow_scale_changes(self, loop: MasterLoop, submit: Callable[[ev.Event], None]) -> None:
        """Follow changes of the ElasticJob by `kubectl scale` and `kubectl edit`."""
        assert self._owners.resource is not None
        name = f"metadata.name={self._owners.resource.name}"  # a user's object need not have the job's labels
        for changes in follow_changes(self._api, ELASTIC_JOB, self._owners.namespace, "", self._stopped, fields=name):
            for before, after in changes:
                ledger = loop.machine.state.ledger
                current = ev.ScaleRequested(ledger.desired_workers, ledger.fleet.desired)
                if (request := find_scale_request(before, after, self._spec.workers, current)) is not None:
                    with contextlib.suppress(RuntimeError):  # the event loop is closed
                        submit(request)


def answer_probe(path: str, silent_s: float) -> HttpResponse:
    """Answers the kubelet's probe: 503 if the master's loop has had no turn for too long."""
    if path != naming.HEALTH_PATH:
        return HttpResponse(404, f"there is {naming.HEALTH_PATH}\n".encode())
    return HttpResponse.from_problem(
        f"the master's loop has had no turn for {silent_s:.0f} s" if silent_s > MAX_LOOP_SILENCE_S else ""
    )


def find_scale_request(
    before: Document | None, after: Document | None, limits: WorkersSpec, current: ev.ScaleRequested
) -> ev.ScaleRequested | None:
    """The desired numbers of workers and ps that a change of an ElasticJob requests; None if it requests none.

    Most changes are of the status, which the master writes itself. They request nothing: otherwise the next one would
    undo `elasticdl scale`. `current` holds the desired numbers of now.
    """
    if after is None or (before is not None and _desired_counts(before) == _desired_counts(after)):
        return None
    workers, ps = _desired_counts(after)
    workers = workers if workers != current.workers and limits.min <= workers <= limits.max else 0
    ps = ps if current.ps and ps != current.ps else 0
    return ev.ScaleRequested(workers, ps) if workers or ps else None


def _desired_counts(resource: Document) -> tuple[int, int]:
    workers, ps = (int(resource["spec"].get(role, {}).get("replicas") or 0) for role in ("workers", "ps"))
    return workers, ps


def _find_job_owners(api: Api, spec: JobSpec, namespace: str) -> JobOwners:
    documents = {
        kind: api.get(kind, name, namespace)
        for kind, name in ((STATEFUL_SET, naming.master_name(spec)), (CONFIG_MAP, naming.spec_name(spec)))
    }
    for kind, document in documents.items():
        if document is None:
            raise SpecError(f"namespace {namespace} has no {kind.kind} of job {spec.name}")
    master, pods = (
        Owner(kind.api_version, kind.kind, document["metadata"]["name"], document["metadata"]["uid"])
        for kind, document in documents.items()
        if document is not None
    )
    owners = (documents[STATEFUL_SET] or {})["metadata"].get("ownerReferences", [])
    resources = [owner for owner in owners if owner["kind"] == ELASTIC_JOB.kind]
    resource = Owner(*(resources[0][key] for key in ("apiVersion", "kind", "name", "uid"))) if resources else None
    created = parse_time((documents[STATEFUL_SET] or {})["metadata"]["creationTimestamp"])
    return JobOwners(namespace, master, pods, resource, int(created.timestamp()))


def publish_refusal(spec: JobSpec, problem: ElasticDLError) -> None:
    """Ends a job that cannot start with a result: a master that only failed would be restarted forever."""
    assert spec.cluster is not None
    try:
        api = Api.connect(role=naming.MASTER)
        namespace = spec.cluster.namespace or api.namespace
        exit_code = SpecError.exit_code if isinstance(problem, SpecError) else ElasticDLError.exit_code
        status_map.write_refusal(api, spec.name, namespace, str(problem), exit_code)
    except ElasticDLError as exc:
        _log.error("the reason could not be written into the job's status: %s", exc)


BATCH_DELAY_S = 0.5

CallLater = Callable[[float, Callable[[], None]], object]  # as `call_later` of an event loop


class EventBatcher:
    """Submits events of pods that are not urgent together, because each turn of the master writes its journal.

    A job of fifty workers gets a hundred reports in a few seconds that a pod waits, and then that it runs. Nothing
    depends on them: a worker that runs connects by itself. The end of a pod, or a problem, is submitted at once,
    together with all events before it, so the order is kept.
    """

    def __init__(
        self, submit: Callable[[ev.Event], None], call_later: CallLater, delay_s: float = BATCH_DELAY_S
    ) -> None:
        self._submit = submit
        self._call_later = call_later
        self._delay_s = delay_s
        self._events: list[ev.Event] = []

    def add(self, event: ev.Event) -> None:
        can_wait = isinstance(event, ev.ReplicaStarted) or (
            isinstance(event, ev.ReplicaDelayed) and not event.is_trouble
        )
        self._events.append(event)
        if not can_wait:
            self._flush()
        elif len(self._events) == 1:
            self._call_later(self._delay_s, self._flush)

    def _flush(self) -> None:
        events, self._events = self._events, []
        for event in events:
            self._submit(event)
