"""Logs of a job's pods, read through the API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from elasticdl.errors import SpecError
from elasticdl.jobs.kubernetes.job_objects import JobObjects
from elasticdl.kube.api import Api
from elasticdl.kube.errors import ApiError, ApiUnavailable, InvalidObject, NotFound
from elasticdl.kube.kinds import POD
from elasticdl.launcher.kubernetes.naming import JOB_LABEL, MASTER, REPLICA_LABEL, ROLE_LABEL

POD_POLL_S = 1.0  # how often new pods are looked for
LOG_END_TIMEOUT_S = 2.0  # how long the end of a log may take to come


def replica_name(pod: dict[str, Any]) -> str:
    """worker-2, ps-0 or master: whose pod it is."""
    labels = pod["metadata"].get("labels", {})
    return str(labels.get(REPLICA_LABEL) or labels.get(ROLE_LABEL) or pod["metadata"]["name"])


def list_started_pods(api: Api, namespace: str, name: str) -> list[dict[str, Any]]:
    """Those that may have written something, the oldest first."""
    pods, _ = api.list(POD, namespace, f"{JOB_LABEL}={name}")
    started = [pod for pod in pods if pod.get("status", {}).get("phase") != "Pending"]
    return sorted(started, key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]))


def list_replicas(api: Api, namespace: str, name: str, role: str) -> list[str]:
    return sorted(
        {
            replica_name(pod)
            for pod in list_started_pods(api, namespace, name)
            if pod["metadata"]["labels"].get(ROLE_LABEL) == role
        }
    )


def read_logs(api: Api, namespace: str, name: str, replica: str, follow: bool) -> Iterator[tuple[str, str]]:
    """Writer and line of one replica, or of all; with `follow` also those of pods to come, until the job is over."""
    if follow:
        yield from _follow_logs(api, namespace, name, replica)
        return
    meant = [pod for pod in list_started_pods(api, namespace, name) if replica in ("", replica_name(pod))]
    if replica and not meant:
        gone = "; the master's pod goes with the end of its job" if replica == MASTER else ""
        raise SpecError(f"job {name!r} has no pod of {replica} that has written anything{gone}")
    for pod in meant:
        try:
            for line in api.logs(pod["metadata"]["name"], namespace):
                yield replica_name(pod), line
        except (NotFound, InvalidObject, ApiUnavailable):
            if replica:
                raise
            # Gone this moment, or on a node that does not answer: those of the others are there.


def _follow_logs(api: Api, namespace: str, name: str, replica: str) -> Iterator[tuple[str, str]]:
    heard: SimpleQueue[tuple[str, str] | None] = SimpleQueue()  # None: a pod has no more to say
    seen: set[str] = set()
    speaking = 0
    while True:
        # Asked before looking: pods of a job that is over then are all there.
        is_over = JobObjects.read(api, namespace, name).is_over
        for pod in list_started_pods(api, namespace, name):
            uid = pod["metadata"]["uid"]
            if uid not in seen and replica in ("", replica_name(pod)):
                seen.add(uid)
                speaking += 1
                arguments = (api, namespace, pod, heard)
                threading.Thread(target=_follow_pod, args=arguments, daemon=True).start()
        if is_over and not speaking:
            return
        look_at = time.monotonic() + POD_POLL_S
        while (left_s := look_at - time.monotonic()) > 0:
            try:
                line = heard.get(timeout=left_s)
            except Empty:
                break
            if line is not None:
                yield line
                continue
            speaking -= 1
            if is_over and not speaking:
                return


def _follow_pod(api: Api, namespace: str, pod: dict[str, Any], heard: SimpleQueue[tuple[str, str] | None]) -> None:
    try:
        for line in api.logs(pod["metadata"]["name"], namespace, follow=True):
            heard.put((replica_name(pod), line))
    except ApiError as exc:
        heard.put((replica_name(pod), f"(no more of this log: {exc})"))
    heard.put(None)


class PodLog:
    """The log of one worker, read as it grows by a thread that begins with the first call of `lines`."""

    def __init__(self, api: Api, namespace: str, name: str, worker: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._worker = worker
        self._heard: SimpleQueue[tuple[str, str] | None] = SimpleQueue()
        self._listener: threading.Thread | None = None

    def read_new_lines(self, *, is_last: bool = False) -> Iterator[str]:
        """Those since the last call; with `is_last` the rest, for which the API server has `LAST_S`."""
        if self._listener is None:
            self._listener = threading.Thread(target=self._listen, daemon=True)
            self._listener.start()
        if is_last:
            self._listener.join(LOG_END_TIMEOUT_S)
        while not self._heard.empty():
            line = self._heard.get()
            if line is not None:
                yield line[1]

    def _listen(self) -> None:
        """A log that cannot be read is not shown: `elasticdl logs` says why."""
        with suppress(ApiError):
            for pod in list_started_pods(self._api, self._namespace, self._name):
                if replica_name(pod) == self._worker:
                    _follow_pod(self._api, self._namespace, pod, self._heard)
