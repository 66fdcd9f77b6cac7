"""The launcher of a job of pods. It lives in the master's process, and in its event loop.

A thread watches the pods; a few more make the calls. Nothing has to be remembered: what a new master is told first
is what the API server has. SIGTERM is a deletion with grace, SIGKILL one without.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from elasticdl.clock import Clock, WallClock
from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyExists, ApiError, ApiUnavailable
from elasticdl.kube.kinds import POD
from elasticdl.kube.watch import ObjectChange, follow_changes
from elasticdl.launcher.interface import (
    Command,
    EndCommand,
    HeartbeatCommand,
    HeartbeatReport,
    LaunchCommand,
    Report,
    SignalCommand,
)
from elasticdl.launcher.kubernetes import manifest
from elasticdl.launcher.kubernetes.api_calls import ApiCalls
from elasticdl.launcher.kubernetes.naming import ROLE_LABEL, WORKER, Owner, cluster_spec, pod_name
from elasticdl.launcher.kubernetes.pod_table import PodTable
from elasticdl.retry import backoff_delays
from elasticdl.spec import JobSpec
from elasticdl.vital import VitalThread

Document = dict[str, Any]

MAX_ENDED_PODS = 20  # pods that ended are kept for their logs: no more than this
KILL_AFTER_S = 5.0  # a replica has timing.grace_period_s to leave by itself, and this much more to end
FLUSH_TIMEOUT_S = 10.0
_log = logging.getLogger(__name__)


class PodLauncher:
    """Launches replicas as pods, and reports what becomes of them as the launcher of processes does."""

    def __init__(
        self,
        api: Api,
        spec: JobSpec,
        namespace: str,
        owner: Owner,
        on_report: Callable[[Report], None],
        *,
        pod_of: Callable[..., Document] = manifest.replica_pod,
        clock: Clock | None = None,
    ) -> None:
        self._api = api
        self._spec = spec
        self._namespace = namespace
        self._owner = owner
        self._on_report = on_report
        self._pod_of = pod_of
        self._clock = clock or WallClock()
        self._table = PodTable(owner.uid)
        self._calls = ApiCalls()
        self._launching: dict[str, Document] = {}  # pods to be, by replica, until the API server has them
        self._unwanted: dict[str, int] = {}  # of these, those that were signalled meanwhile, and the signal
        self._wake = asyncio.Event()  # set when a launch that waits should look again
        self._removing: set[str] = set()  # uids of pods that ended
        self._is_listed = False
        self._over_grace_s: float | None = None  # set once the job is over

    async def run(self) -> None:
        """Watch until cancelled."""
        stopped = threading.Event()
        arguments = (asyncio.get_running_loop(), stopped)
        VitalThread(self._watch, args=arguments, name="pod-watch").start()
        try:
            await self._calls.failed
        finally:
            stopped.set()
            self._calls.close()

    def execute(self, command: Command) -> None:
        match command:
            case LaunchCommand():
                self._launch(command)
            case SignalCommand(replica, number):
                self._signal(replica, number)
            case EndCommand(_, grace_s):
                self._end(grace_s)
            case HeartbeatCommand():  # it lives in the loop of the master
                self._on_report(HeartbeatReport())

    async def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        """Return when all that was commanded has been done by the API server, or after `timeout_s`."""
        await self._calls.flush(timeout_s)

    @property
    def _is_over(self) -> bool:
        return self._over_grace_s is not None

    # --- pods come to life ---

    def _launch(self, launch: LaunchCommand) -> None:
        replica = launch.replica
        if self._is_over:
            return
        if replica in self._launching or self._table.last_report(replica):
            self._report(self._table.last_report(replica))
            return
        self._launching[replica] = self._pod_document(launch)
        self._calls.start(self._create(replica, self._launching[replica]))

    def _pod_document(self, launch: LaunchCommand) -> Document:
        replica, role = launch.replica, launch.role
        asked: dict[str, Any] = {"raises": launch.memory_raises, "environ": launch.environ}
        asked["shunned"] = self._table.nodes_of(launch.avoid_nodes_of)
        share = cluster_spec(self._spec).worker.high_share if role == WORKER else None
        if share is not None:
            high = self._pod_of(self._spec, replica, role, self._owner, is_high=True, **asked)
            desired = launch.desired_workers or self._spec.workers.replicas
            asked["is_high"] = manifest.is_high_priority(share, desired, self._count_like(high))
        pod = self._pod_of(self._spec, replica, role, self._owner, **asked)
        return pod | {"metadata": {"namespace": self._namespace} | pod["metadata"]}

    def _count_like(self, pod: Document) -> int:
        """How many pods that live, or soon will, have the role and the priority of this one."""
        return sum(
            _role_and_priority(one) == _role_and_priority(pod)
            for one in (self._launching | self._table.living_pods()).values()
        )

    async def _create(self, replica: str, pod: Document) -> None:
        """Try until it is there, or not wanted any more."""
        waits = backoff_delays()
        while replica not in self._unwanted and not self._is_over:
            if await self._try_to_create(replica, pod):
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), next(waits))
        del self._launching[replica]
        number = self._unwanted.pop(replica, None)
        if number is not None or self._is_over:
            await self._remove(replica, number or signal.SIGTERM)

    async def _try_to_create(self, replica: str, pod: Document) -> bool:
        try:
            created = await self._calls.call_once(self._api.create, pod)
        except AlreadyExists as exc:
            # By a try before this one, whose answer was lost. Or it is of an earlier job, and still going.
            found = await self._calls.call_until_answered(self._api.get, POD, pod["metadata"]["name"], self._namespace)
            if found is None or not self._table.is_ours(found):
                self._report(self._table.mark_waiting(replica, f"{exc}; that one is not of this job"))
                return False
            created = found
        except ApiUnavailable as exc:
            _log.warning("%s; trying again", exc)
            return False
        except ApiError as exc:
            self._report(self._table.mark_waiting(replica, str(exc)))
            return False
        if self._table.get_pod(replica) is None:  # the watch may have been faster
            self._report(self._table.apply_change(None, created, self._clock.now()))
        return True

    # --- and end ---

    def _signal(self, replica: str, number: int) -> None:
        if replica in self._launching:
            self._unwanted[replica] = number
            self._wake.set()
            self._wake.clear()
        else:
            self._calls.start(self._remove(replica, number))

    async def _remove(self, replica: str, number: int) -> None:
        """Delete the pod, and say so if there was none: somebody waits to hear of its end."""
        name, pod = pod_name(self._spec, replica), self._table.get_pod(replica)
        if pod is None:
            pod = await self._calls.call_until_answered(self._api.get, POD, name, self._namespace)
        if pod is not None and self._table.is_ours(pod):
            grace_s = 0.0 if number == signal.SIGKILL else self._grace_s
            arguments = (POD, name, self._namespace, grace_s, pod["metadata"]["uid"])
            await self._calls.call_until_answered(self._api.delete, *arguments)
        elif not self._is_over:
            self._report(self._table.mark_never_created(replica, number, self._clock.now()))

    @property
    def _grace_s(self) -> float:
        given = self._over_grace_s
        return (self._spec.timing.grace_period_s if given is None else given) + KILL_AFTER_S

    def _end(self, grace_s: float | None) -> None:
        """Whoever still lives is deleted, with grace; whoever ended stays, for its log."""
        self._over_grace_s = self._spec.timing.grace_period_s if grace_s is None else grace_s
        self._wake.set()
        for replica in self._table.living_pods():
            self._calls.start(self._remove(replica, signal.SIGTERM))

    def _tidy(self) -> None:
        for pod in self._table.surplus_pods(MAX_ENDED_PODS):
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            if uid not in self._removing:
                self._removing.add(uid)
                self._calls.start(
                    self._calls.call_until_answered(self._api.delete, POD, name, self._namespace, None, uid)
                )

    # --- what becomes of them ---

    def _watch(self, loop: asyncio.AbstractEventLoop, stopped: threading.Event) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            try:
                for changes in follow_changes(
                    self._api, POD, self._namespace, manifest.label_selector(self._spec), stopped
                ):
                    loop.call_soon_threadsafe(self._take_changes, changes)
            except Exception as exc:
                loop.call_soon_threadsafe(self._calls.fail, exc)

    def _take_changes(self, changes: list[ObjectChange]) -> None:
        news = [report for change in changes for report in self._table.apply_change(*change, self._clock.now())]
        if not self._is_listed:
            self._is_listed = True
            news = [self._table.replicas_report(), *self._table.delay_reports()]
        self._report(news)
        self._tidy()

    def _report(self, reports: Sequence[Report]) -> None:
        """Nothing before the list of all: it has what was learned until then."""
        if self._is_listed:
            for report in reports:
                self._on_report(report)


def _role_and_priority(pod: Document) -> tuple[str, str]:
    return pod["metadata"]["labels"][ROLE_LABEL], pod["spec"].get("priorityClassName", "")
