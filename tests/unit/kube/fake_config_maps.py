"""An API server that keeps objects in a dictionary, and an Api to it whose calls fail as a test says."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from elasticdl.kube.errors import AlreadyExists, ApiUnavailable, Conflict, NotFound

Document = dict[str, Any]


class Crash(Exception):
    """The master is killed here."""


class ObjectStore:
    """The objects of an API server, with versions and uids."""

    def __init__(self) -> None:
        self.objects: dict[str, Document] = {}
        self._version = 0

    def write(self, document: Document, uid: str = "") -> Document:
        self._version += 1
        metadata = document["metadata"] | {"resourceVersion": str(self._version), "uid": uid or f"uid-{self._version}"}
        self.objects[metadata["name"]] = copy.deepcopy(document | {"metadata": metadata})
        return copy.deepcopy(self.objects[metadata["name"]])


class FaultyApi:
    """The calls of `Api` that a journal needs. The n-th call has the fault `faults[n]`; `before[n]` runs before it."""

    def __init__(self, store: ObjectStore, faults: list[str] | None = None) -> None:
        self._store = store
        self.faults = list(faults or [])
        self.calls = 0
        self.before: dict[int, Callable[[], None]] = {}

    def list(self, kind: Any, namespace: str = "", labels: str = "") -> Any:
        return self._call(lambda: ([copy.deepcopy(document) for document in self._store.objects.values()], "0"))

    def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        return self._call(lambda: copy.deepcopy(self._store.objects.get(name)))

    def create(self, document: Document) -> Any:
        def act() -> Document:
            if document["metadata"]["name"] in self._store.objects:
                raise AlreadyExists(document["metadata"]["name"])
            return self._store.write(document)

        return self._call(act)

    def replace(self, document: Document) -> Any:
        def act() -> Document:
            metadata = document["metadata"]
            if (existing := self._store.objects.get(metadata["name"])) is None:
                raise NotFound(metadata["name"])
            if existing["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
                raise Conflict(metadata["name"])
            return self._store.write(document, existing["metadata"]["uid"])

        return self._call(act)

    def delete(self, kind: Any, name: str, namespace: str = "", grace_s: float | None = None, uid: str = "") -> Any:
        def act() -> bool:
            existing = self._store.objects.get(name)
            if existing is None or (uid and existing["metadata"]["uid"] != uid):
                return False
            del self._store.objects[name]
            return True

        return self._call(act)

    def _call(self, act: Callable[[], Any]) -> Any:
        self.calls += 1
        if (run_before := self.before.pop(self.calls, None)) is not None:
            run_before()
        fault = self.faults.pop(0) if self.faults else "ok"
        if fault == "unavailable":
            raise ApiUnavailable("no answer")
        if fault == "crash before":
            raise Crash
        result = act()
        if fault == "response lost":
            raise ApiUnavailable("the response was lost")
        if fault == "crash after":
            raise Crash
        return result
