"""An API server that keeps objects in a dictionary, and a way to it on which anything may go wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from elasticdl.kube.errors import AlreadyExists, ApiUnavailable, Conflict, NotFound

Document = dict[str, Any]


class Crash(Exception):
    """The master dies here."""


class Store:
    def __init__(self) -> None:
        self.objects: dict[str, Document] = {}
        self._version = 0

    def write(self, document: Document, uid: str = "") -> Document:
        self._version += 1
        metadata = document["metadata"] | {"resourceVersion": str(self._version), "uid": uid or f"uid-{self._version}"}
        self.objects[metadata["name"]] = copy.deepcopy(document | {"metadata": metadata})
        return copy.deepcopy(self.objects[metadata["name"]])


class Way:
    """The calls of `Api` that a journal needs. `faults[n]` befalls the n-th call; `before[n]` is run before it."""

    def __init__(self, store: Store, faults: list[str] | None = None) -> None:
        self._store = store
        self.faults = list(faults or [])
        self.calls = 0
        self.before: dict[int, Callable[[], None]] = {}

    def list(self, kind: Any, namespace: str = "", labels: str = "") -> Any:
        return self._do(lambda: ([copy.deepcopy(one) for one in self._store.objects.values()], "0"))

    def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        return self._do(lambda: copy.deepcopy(self._store.objects.get(name)))

    def create(self, document: Document) -> Any:
        def act() -> Document:
            if document["metadata"]["name"] in self._store.objects:
                raise AlreadyExists(document["metadata"]["name"])
            return self._store.write(document)

        return self._do(act)

    def replace(self, document: Document) -> Any:
        def act() -> Document:
            metadata = document["metadata"]
            if (known := self._store.objects.get(metadata["name"])) is None:
                raise NotFound(metadata["name"])
            if known["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
                raise Conflict(metadata["name"])
            return self._store.write(document, known["metadata"]["uid"])

        return self._do(act)

    def delete(self, kind: Any, name: str, namespace: str = "", grace_s: float | None = None, uid: str = "") -> Any:
        def act() -> bool:
            known = self._store.objects.get(name)
            if known is None or (uid and known["metadata"]["uid"] != uid):
                return False
            del self._store.objects[name]
            return True

        return self._do(act)

    def _do(self, act: Callable[[], Any]) -> Any:
        self.calls += 1
        if (first := self.before.pop(self.calls, None)) is not None:
            first()
        fault = self.faults.pop(0) if self.faults else "ok"
        if fault == "away":
            raise ApiUnavailable("no answer")
        if fault == "crash before":
            raise Crash
        answer = act()
        if fault == "lost":
            raise ApiUnavailable("the answer was lost")
        if fault == "crash after":
            raise Crash
        return answer
