"""Pods of the workers of all jobs of a namespace and the times of their changes, from a watch."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from elasticdl.kube.api import Api
from elasticdl.kube.kinds import POD
from elasticdl.kube.watch import follow_changes
from elasticdl.launcher.kubernetes.naming import JOB_LABEL, ROLE_LABEL


class WorkerPods:
    """Times are of `time.monotonic`. `with` it: a thread watches."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._pods: dict[str, dict[str, Any]] = {}
        self._running: set[str] = set()
        self._made_at: defaultdict[str, list[float]] = defaultdict(list)  # by job, in the order they came

    def __enter__(self) -> WorkerPods:
        threading.Thread(target=self._watch, name="worker-pods", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def running(self) -> int:
        return len(self._running)

    def names(self, job: str) -> list[str]:
        """Names of the living pods of a job, oldest first."""
        return [
            name
            for name, pod in list(self._pods.items())
            if pod["metadata"]["labels"][JOB_LABEL] == job and "deletionTimestamp" not in pod["metadata"]
        ]

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in list(self._pods.items())}

    def wait(self, is_so: Callable[[], bool], condition: str, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        with self._changed:
            while not is_so():
                left_s = deadline - time.monotonic()
                assert left_s > 0, f"waited {patience_s:.0f} s in vain for {condition}: {self.running()} run"
                self._changed.wait(min(left_s, 1.0))

    def wait_running(self, count: int, patience_s: float) -> None:
        self.wait(lambda: self.running() == count, f"{count} running pods", patience_s)

    def replaced_s(self, names: list[str], patience_s: float) -> list[float]:
        """Deletes these pods at once. Returns for each the seconds until the watch reported another pod of its job."""
        job_of = {name: self._pods[name]["metadata"]["labels"][JOB_LABEL] for name in names}
        had = {job: len(self._made_at[job]) for job in job_of.values()}
        deleted_of = Counter(job_of.values())
        deleted_at: defaultdict[str, list[float]] = defaultdict(list)

        def delete(name: str) -> None:
            deleted_at[job_of[name]].append(time.monotonic())
            self._api.delete(POD, name, self._namespace)

        threads = [threading.Thread(target=delete, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.wait(
            lambda: all(len(self._made_at[job]) >= had[job] + count for job, count in deleted_of.items()),
            f"others in the place of {len(names)} pods", patience_s,
        )  # fmt: skip
        return [
            created - deleted
            for job, count in deleted_of.items()
            for created, deleted in zip(self._made_at[job][had[job] :][:count], sorted(deleted_at[job]), strict=True)
        ]

    def _watch(self) -> None:
        for changes in follow_changes(self._api, POD, self._namespace, f"{ROLE_LABEL}=worker", self._stopped):
            now = time.monotonic()
            with self._changed:
                for before, after in changes:
                    if after is None:
                        assert before is not None
                        self._pods.pop(before["metadata"]["name"], None)
                        self._running.discard(before["metadata"]["name"])
                        continue
                    if before is None:
                        self._made_at[after["metadata"]["labels"][JOB_LABEL]].append(now)
                    self._pods[after["metadata"]["name"]] = after
                    if after.get("status", {}).get("phase") == "Running":
                        self._running.add(after["metadata"]["name"])
                self._changed.notify_all()
