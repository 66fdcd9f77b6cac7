"""Staying with a job on a cluster: its status comes from the master, its end from what the master wrote down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from elasticdl.cli.cluster_job import ClusterJob
from elasticdl.cli.cluster_logs import PodLog
from elasticdl.cli.reach import reach
from elasticdl.cli.standing import Standing
from elasticdl.kube.api import Api
from elasticdl.kube.errors import ApiAway
from elasticdl.spec.directory import JobDirectory

if TYPE_CHECKING:
    from rich.console import Console

PAUSE_S = 0.2  # between two looks at a job that has no result yet


class ClusterWatched:
    def __init__(self, directory: JobDirectory, api: Api, namespace: str, name: str) -> None:
        self.directory = directory
        self._api = api
        self._namespace = namespace
        self._name = name
        self._standing: Standing | None = None
        self._problem = ""  # of the API server

    def is_alive(self) -> bool:
        try:
            self._standing = Standing.read(self._api, self._namespace, self._name)
        except ApiAway as exc:  # the API server, too, comes back
            self._standing = None
            self._problem = f"the cluster does not answer: {exc}"
            time.sleep(PAUSE_S)
            return True
        self._standing.write_into(self.directory)
        if self._standing.result is None:
            time.sleep(PAUSE_S)
        return not self._standing.is_over and self._standing.result is None

    def has_started(self) -> bool:
        return self._standing is not None and '"master-restarted"' in self._standing.events

    def why_away(self) -> str:
        return self._standing.why_away if self._standing is not None else self._problem

    def logs(self) -> str:
        return f"`elasticdl logs {self._name} --master`"

    def open_log(self, worker: str) -> PodLog:
        return PodLog(self._api, self._namespace, self._name, worker)

    def kill(self) -> str:
        standing = Standing.read(self._api, self._namespace, self._name)
        return ClusterJob(self._api, self._namespace, self._name, standing).kill(delete=True)

    def finish(self, console: Console) -> None:
        assert self._standing is not None, "a job that is over was looked at"
        found = ClusterJob(self._api, self._namespace, self._name, self._standing)
        found.summarize(found.glance(), console)


@contextmanager
def watched(api: Api, namespace: str, name: str) -> Iterator[ClusterWatched]:
    with reach(api, namespace, name) as directory:
        yield ClusterWatched(directory, api, namespace, name)
