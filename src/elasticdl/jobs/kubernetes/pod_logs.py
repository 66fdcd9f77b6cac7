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

POD_POLL_S = 1.0  # how often new pods are listed
LOG_END_TIMEOUT_S = 2.0  # how long to wait for the end of a log


def replica_name(pod: dict[str, Any]) -> str:
    """The replica of a pod: worker-2, ps-0 or master."""
    labels = pod["metadata"].get("labels", {})
    return str(labels.get(REPLICA_LABEL) or labels.get(ROLE_LABEL) or pod["metadata"]["name"])


def list_started_pods(api: Api, namespace: str, name: str) -> list[dict[str, Any]]:
    """The pods that may have written something, the oldest first."""
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
    """The lines of one replica or of all, each with its replica; with `follow` also new ones, until the job is over."""
    if follow:
        yield from _follow_logs(api, namespace, name, replica)
        return
    pods = [pod for pod in list_started_pods(api, namespace, name) if replica in ("", replica_name(pod))]
    if replica and not pods:
        hint = "; the master's pod is deleted at the end of its job" if replica == MASTER else ""
        raise SpecError(f"job {name!r} has no pod of {replica} that has written anything{hint}")
    for pod in pods:
        try:
            for line in api.logs(pod["metadata"]["name"], namespace):
                yield replica_name(pod), line
        except (NotFound, InvalidObject, ApiUnavailable):
            if replica:
                raise
            # The pod was deleted just now, or its node does not answer; show the other logs.


def _follow_logs(api: Api, namespace: str, name: str, replica: str) -> Iterator[tuple[str, str]]:
    lines: SimpleQueue[tuple[str, str] | None] = SimpleQueue()  # None: the log of a pod has ended
    seen: set[str] = set()
    open_logs = 0
    while True:
        # Before the pods are listed: a job that is over by then gets no more pods.
        is_over = JobObjects.read(api, namespace, name).is_over
        for pod in list_started_pods(api, namespace, name):
            uid = pod["metadata"]["uid"]
            if uid not in seen and replica in ("", replica_name(pod)):
                seen.add(uid)
                open_logs += 1
                arguments = (api, namespace, pod, lines)
                threading.Thread(target=_follow_pod, args=arguments, daemon=True).start()
        if is_over and not open_logs:
            return
        poll_at = time.monotonic() + POD_POLL_S
        while (remaining_s := poll_at - time.monotonic()) > 0:
            try:
                line = lines.get(timeout=remaining_s)
            except Empty:
                break
            if line is not None:
                yield line
                continue
            open_logs -= 1
            if is_over and not open_logs:
                return


def _follow_pod(api: Api, namespace: str, pod: dict[str, Any], lines: SimpleQueue[tuple[str, str] | None]) -> None:
    try:
        for line in api.logs(pod["metadata"]["name"], namespace, follow=True):
            lines.put((replica_name(pod), line))
    except ApiError as exc:
        lines.put((replica_name(pod), f"(cannot read more of this log: {exc})"))
    lines.put(None)


class PodLog:
    """The log of one worker, read as it grows by a thread that the first `read_new_lines` starts."""

    def __init__(self, api: Api, namespace: str, name: str, worker: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._worker = worker
        self._lines: SimpleQueue[tuple[str, str] | None] = SimpleQueue()
        self._reader: threading.Thread | None = None

    def read_new_lines(self, *, is_last: bool = False) -> Iterator[str]:
        """The lines since the last call; with `is_last` it waits LOG_END_TIMEOUT_S for the last ones."""
        if self._reader is None:
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
        if is_last:
            self._reader.join(LOG_END_TIMEOUT_S)
        while not self._lines.empty():
            line = self._lines.get()
            if line is not None:
                yield line[1]

    def _read(self) -> None:
        """Read the log; errors are ignored here, because `elasticdl logs` shows them."""
        with suppress(ApiError):
            for pod in list_started_pods(self._api, self._namespace, self._name):
                if replica_name(pod) == self._worker:
                    _follow_pod(self._api, self._namespace, pod, self._lines)
