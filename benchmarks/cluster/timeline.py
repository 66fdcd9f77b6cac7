"""When things became so, as the API server told them: watches, with the clock of this machine.

Objects of Kubernetes carry times in whole seconds. A watch tells within milliseconds, so what is noted is when it did.
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
OPEN_S = 10.0
LOOK_S = 0.05  # what pods note in files is not told by any watch


class TooLongError(Exception):
    """What was waited for did not come within the limit."""


@dataclass(slots=True)
class Seen:
    """One object, and when each word about it came true: created, scheduled, running, preempted, deleted, gone."""

    kind: str
    name: str
    node: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)  # seconds of the monotonic clock

    def note(self, document: dict[str, Any], now: float) -> None:
        self.labels = document["metadata"].get("labels", {})
        self.node = document.get("spec", {}).get("nodeName", "") if self.kind == kinds.POD.kind else ""
        for word in words(document):
            self.at.setdefault(word, now)


def words(document: dict[str, Any]) -> list[str]:
    """All that is true of an object."""
    status = document.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or [] if one["status"] == "True"}
    states = [one.get("state") or {} for one in status.get("containerStatuses") or []]
    said = {
        "created": True,
        "scheduled": bool(document.get("spec", {}).get("nodeName")),
        "running": any("running" in state for state in states),
        "preempted": conditions.get("DisruptionTarget", {}).get("reason") == "PreemptionByScheduler",
        "deleted": "deletionTimestamp" in document["metadata"],
    }
    return [word for word, is_so in said.items() if is_so]


class Timeline:
    """Everything in a namespace, from `with` on."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._stopped = threading.Event()
        self._listed = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._seen: dict[str, Seen] = {}

    def __enter__(self) -> Self:
        for kind in KINDS:
            threading.Thread(target=self._follow, args=(kind,), name=f"watch-{kind.plural}", daemon=True).start()
        for _ in KINDS:
            if not self._listed.acquire(timeout=OPEN_S):
                raise TooLongError(f"the API server gave no list within {OPEN_S:g} s")
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def objects(self, kind: kinds.ResourceKind, labels: dict[str, str]) -> list[Seen]:
        """Of a kind, with these labels, those that are gone too; oldest first."""
        with self._lock:
            found = [one for one in self._seen.values() if one.kind == kind.kind]
            return sorted(
                (one for one in found if labels.items() <= one.labels.items()), key=lambda one: one.at["created"]
            )

    def pods(self, labels: dict[str, str]) -> list[Seen]:
        return self.objects(kinds.POD, labels)

    def wait(self, found: Callable[[], _T | None], what: str, limit_s: float) -> _T:
        """Look again and again until there is something."""
        deadline = time.monotonic() + limit_s
        while not (value := found()):
            if time.monotonic() > deadline:
                raise TooLongError(f"waited {limit_s:g} s for {what}")
            time.sleep(LOOK_S)
        return value

    def _follow(self, kind: kinds.ResourceKind) -> None:
        is_first = True
        for changes in follow_changes(self._api, kind, self._namespace, "", self._stopped):
            self._note(kind, changes, time.monotonic())
            if is_first:
                self._listed.release()
                is_first = False

    def _note(self, kind: kinds.ResourceKind, changes: list[ObjectChange], now: float) -> None:
        with self._lock:
            for before, after in changes:
                document = after or before
                assert document is not None
                metadata = document["metadata"]
                seen = self._seen.setdefault(metadata["uid"], Seen(kind.kind, metadata["name"]))
                seen.note(document, now)
                if after is None:
                    seen.at.setdefault("gone", now)
