"""When the conditions of Kubernetes objects became true, by watches and the clock of this machine.

Objects record times in whole seconds. A watch reports within milliseconds, so the times here are those of its reports.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.kube.watch import ObjectChange, follow_changes

_T = TypeVar("_T")
KINDS = (kinds.POD, kinds.STATEFUL_SET, kinds.ELASTIC_JOB)
LIST_TIMEOUT_S = 10.0
POLL_S = 0.05  # no watch reports what pods write to files


class WaitTimeoutError(Exception):
    """A condition did not become true within the limit."""


@dataclass(slots=True)
class ObservedObject:
    """One object, and since when it is created, scheduled, running, preempted, deleted and gone."""

    kind: str
    name: str
    node: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)  # seconds of the monotonic clock

    def update(self, document: dict[str, Any], now: float) -> None:
        self.labels = document["metadata"].get("labels", {})
        self.node = document.get("spec", {}).get("nodeName", "") if self.kind == kinds.POD.kind else ""
        for condition in true_conditions(document):
            self.since.setdefault(condition, now)


def true_conditions(document: dict[str, Any]) -> list[str]:
    """Returns the conditions that hold for an object."""
    status = document.get("status") or {}
    conditions = {
        condition["type"]: condition for condition in status.get("conditions") or [] if condition["status"] == "True"
    }
    states = [condition.get("state") or {} for condition in status.get("containerStatuses") or []]
    is_true_by_name = {
        "created": True,
        "scheduled": bool(document.get("spec", {}).get("nodeName")),
        "running": any("running" in state for state in states),
        "preempted": conditions.get("DisruptionTarget", {}).get("reason") == "PreemptionByScheduler",
        "deleted": "deletionTimestamp" in document["metadata"],
    }
    return [name for name, is_true in is_true_by_name.items() if is_true]


class Timeline:
    """Observes all objects in a namespace, from `with` on."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._stopped = threading.Event()
        self._listed = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._objects: dict[str, ObservedObject] = {}

    def __enter__(self) -> Self:
        for kind in KINDS:
            threading.Thread(target=self._follow, args=(kind,), name=f"watch-{kind.plural}", daemon=True).start()
        for _ in KINDS:
            if not self._listed.acquire(timeout=LIST_TIMEOUT_S):
                raise WaitTimeoutError(f"the API server gave no list within {LIST_TIMEOUT_S:g} s")
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def objects(self, kind: kinds.ResourceKind, labels: dict[str, str]) -> list[ObservedObject]:
        """Returns the objects of a kind with these labels, deleted ones too, oldest first."""
        with self._lock:
            of_kind = [observed for observed in self._objects.values() if observed.kind == kind.kind]
            return sorted(
                (observed for observed in of_kind if labels.items() <= observed.labels.items()),
                key=lambda observed: observed.since["created"],
            )

    def pods(self, labels: dict[str, str]) -> list[ObservedObject]:
        return self.objects(kinds.POD, labels)

    def wait(self, check: Callable[[], _T | None], what: str, limit_s: float) -> _T:
        """Calls `check` until its result is true; returns this result."""
        deadline = time.monotonic() + limit_s
        while not (result := check()):
            if time.monotonic() > deadline:
                raise WaitTimeoutError(f"waited {limit_s:g} s for {what}")
            time.sleep(POLL_S)
        return result

    def _follow(self, kind: kinds.ResourceKind) -> None:
        is_first = True
        for changes in follow_changes(self._api, kind, self._namespace, "", self._stopped):
            self._update(kind, changes, time.monotonic())
            if is_first:
                self._listed.release()
                is_first = False

    def _update(self, kind: kinds.ResourceKind, changes: list[ObjectChange], now: float) -> None:
        with self._lock:
            for before, after in changes:
                document = after or before
                assert document is not None
                metadata = document["metadata"]
                observed = self._objects.setdefault(metadata["uid"], ObservedObject(kind.kind, metadata["name"]))
                observed.update(document, now)
                if after is None:
                    observed.since.setdefault("gone", now)
