"""The launcher of a job of pods. It lives in the master's process, and in its event loop.

A thread watches the pods; a few more make the calls. It keeps no record on disk: its first report to a new master is
what the API server has. SIGTERM is a deletion with a grace period, SIGKILL one without.
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

MAX_ENDED_PODS = 20  # this many pods that ended are kept for their logs
KILL_AFTER_S = 5.0  # a replica has timing.grace_period_s to leave by itself, and this much more to exit
FLUSH_TIMEOUT_S = 10.0
_log = logging.getLogger(__name__)


class PodLauncher:
    """Launches replicas as pods, and reports their status as the launcher of processes does."""

    def __init__(
        self,
        api: Api,
        spec: JobSpec,
        namespace: str,
        owner: Owner,
        on_report: Callable[[Report], None],
        *,
        build_pod: Callable[..., Document] = manifest.replica_pod,
        clock: Clock | None = None,
    ) -> None:
        self._api = api
        self._spec = spec
        self._namespace = namespace
        self._owner = owner
        self._on_report = on_report
        self._build_pod = build_pod
        self._clock = clock or WallClock()
        self._table = PodTable(owner.uid)
        self._calls = ApiCalls()
        self._launching: dict[str, Document] = {}  # pods by replica, until the API server has them
        self._cancelled: dict[str, int] = {}  # of these, the replicas signalled meanwhile, and the signal
        self._wake = asyncio.Event()  # set to wake launches that wait for their next try
        self._deleting: set[str] = set()  # uids of ended pods
        self._is_listed = False
        self._final_grace_s: float | None = None  # set once the job is over

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
            case SignalCommand(replica, signal_number):
                self._signal(replica, signal_number)
            case EndCommand(_, grace_s):
                self._end(grace_s)
            case HeartbeatCommand():  # it shares the master's loop
                self._on_report(HeartbeatReport())

    async def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        """Return when the API server has done all commands so far, or after `timeout_s`."""
        await self._calls.flush(timeout_s)

    @property
    def _is_over(self) -> bool:
        return self._final_grace_s is not None

    # --- creating pods ---

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
        settings: dict[str, Any] = {
            "memory_raises": launch.memory_raises,
            "environ": launch.environ,
            "avoid_nodes": self._table.nodes_of(launch.avoid_nodes_of),
        }
        share = cluster_spec(self._spec).worker.high_share if role == WORKER else None
        if share is not None:
            high = self._build_pod(self._spec, replica, role, self._owner, is_high=True, **settings)
            desired = launch.desired_workers or self._spec.workers.replicas
            settings["is_high"] = manifest.is_high_priority(share, desired, self._count_similar(high))
        pod = self._build_pod(self._spec, replica, role, self._owner, **settings)
        return pod | {"metadata": {"namespace": self._namespace} | pod["metadata"]}

    def _count_similar(self, pod: Document) -> int:
        """How many living or launching pods have the role and the priority of this one."""
        return sum(
            _role_and_priority(similar) == _role_and_priority(pod)
            for similar in (self._launching | self._table.living_pods()).values()
        )

    async def _create(self, replica: str, pod: Document) -> None:
        """Try until the pod exists or its replica is cancelled."""
        delays = backoff_delays()
        while replica not in self._cancelled and not self._is_over:
            if await self._try_to_create(replica, pod):
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), next(delays))
        del self._launching[replica]
        signal_number = self._cancelled.pop(replica, None)
        if signal_number is not None or self._is_over:
            await self._delete(replica, signal_number or signal.SIGTERM)

    async def _try_to_create(self, replica: str, pod: Document) -> bool:
        try:
            created = await self._calls.call_once(self._api.create, pod)
        except AlreadyExists as exc:
            # Created by an earlier try whose answer was lost; or it belongs to an earlier job and is still ending.
            existing = await self._calls.call_until_answered(
                self._api.get, POD, pod["metadata"]["name"], self._namespace
            )
            if existing is None or not self._table.is_ours(existing):
                self._report(self._table.mark_waiting(replica, f"{exc}; that one is not of this job"))
                return False
            created = existing
        except ApiUnavailable as exc:
            _log.warning("%s; trying again", exc)
            return False
        except ApiError as exc:
            self._report(self._table.mark_waiting(replica, str(exc)))
            return False
        if self._table.get_pod(replica) is None:  # the watch may have been faster
            self._report(self._table.apply_change(None, created, self._clock.now()))
        return True

    # --- deleting pods ---

    def _signal(self, replica: str, signal_number: int) -> None:
        if replica in self._launching:
            self._cancelled[replica] = signal_number
            self._wake.set()
            self._wake.clear()
        else:
            self._calls.start(self._delete(replica, signal_number))

    async def _delete(self, replica: str, signal_number: int) -> None:
        """Delete the pod; if there is none, report its end, because the master waits for that."""
        name, pod = pod_name(self._spec, replica), self._table.get_pod(replica)
        if pod is None:
            pod = await self._calls.call_until_answered(self._api.get, POD, name, self._namespace)
        if pod is not None and self._table.is_ours(pod):
            grace_s = 0.0 if signal_number == signal.SIGKILL else self._grace_s
            arguments = (POD, name, self._namespace, grace_s, pod["metadata"]["uid"])
            await self._calls.call_until_answered(self._api.delete, *arguments)
        elif not self._is_over:
            self._report(self._table.mark_never_created(replica, signal_number, self._clock.now()))

    @property
    def _grace_s(self) -> float:
        grace_s = self._spec.timing.grace_period_s if self._final_grace_s is None else self._final_grace_s
        return grace_s + KILL_AFTER_S

    def _end(self, grace_s: float | None) -> None:
        """Delete all living pods, with a grace period; those that ended stay for their logs."""
        self._final_grace_s = self._spec.timing.grace_period_s if grace_s is None else grace_s
        self._wake.set()
        for replica in self._table.living_pods():
            self._calls.start(self._delete(replica, signal.SIGTERM))

    def _delete_surplus_pods(self) -> None:
        for pod in self._table.surplus_pods(MAX_ENDED_PODS):
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            if uid not in self._deleting:
                self._deleting.add(uid)
                self._calls.start(
                    self._calls.call_until_answered(self._api.delete, POD, name, self._namespace, None, uid)
                )

    # --- watching pods ---

    def _watch(self, loop: asyncio.AbstractEventLoop, stopped: threading.Event) -> None:
        with suppress(RuntimeError):  # the loop is closed
            try:
                for changes in follow_changes(
                    self._api, POD, self._namespace, manifest.label_selector(self._spec), stopped
                ):
                    loop.call_soon_threadsafe(self._apply_changes, changes)
            except Exception as exc:
                loop.call_soon_threadsafe(self._calls.fail, exc)

    def _apply_changes(self, changes: list[ObjectChange]) -> None:
        reports = [report for change in changes for report in self._table.apply_change(*change, self._clock.now())]
        if not self._is_listed:
            self._is_listed = True
            reports = [self._table.replicas_report(), *self._table.delay_reports()]
        self._report(reports)
        self._delete_surplus_pods()

    def _report(self, reports: Sequence[Report]) -> None:
        """Report nothing before the list of all replicas, which contains everything known by then."""
        if self._is_listed:
            for report in reports:
                self._on_report(report)


def _role_and_priority(pod: Document) -> tuple[str, str]:
    return pod["metadata"]["labels"][ROLE_LABEL], pod["spec"].get("priorityClassName", "")
