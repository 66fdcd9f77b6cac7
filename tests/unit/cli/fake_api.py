"""An API server in memory, as far as the command line needs one. An unknown call fails the test."""

from __future__ import annotations

import base64
import copy
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from elasticdl.kube.api import ALL_NAMESPACES
from elasticdl.kube.errors import AlreadyExists, ApiCall, Forbidden, NotFound
from elasticdl.kube.kinds import CONFIG_MAP, NAMESPACE, POD, SECRET, STATEFUL_SET, ResourceKind, kind_of

Document = dict[str, Any]
Key = tuple[ResourceKind, str, str]


class FakeApi:
    def __init__(self, namespace: str = "default", context: str = "fake") -> None:
        self.namespace, self.context, self.server = namespace, context, "https://fake"
        self.objects: dict[Key, Document] = {}
        self.calls: list[tuple[str, str]] = []  # verb and "kind name" of each change
        self.forbidden: set[tuple[str, str]] = set()  # verb and plural (or plural/sub)
        self.before_create: Callable[[Document], None] = lambda _: None
        self.written: dict[str, Sequence[str]] = {}  # log lines by pod
        self.master: tuple[str, int] | None = None  # where a port-forward leads
        self.forwards: list[str] = []
        self._uids = count(1)
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})

    def version(self) -> str:
        return "v1.34.0"

    def get(self, kind: ResourceKind, name: str, namespace: str = "") -> Document | None:
        self._check("get", kind)
        return copy.deepcopy(self.objects.get(self._key(kind, namespace, name)))

    def list(self, kind: ResourceKind, namespace: str = "", labels: str = "") -> tuple[list[Document], str]:
        self._check("list", kind)
        selector = dict(pair.split("=") for pair in labels.split(",") if pair)
        documents = []
        for (stored_kind, key_namespace, _), document in self.objects.items():
            document_labels = document["metadata"].get("labels", {})
            if stored_kind == kind and (
                namespace == ALL_NAMESPACES or key_namespace == self._key(kind, namespace, "")[1]
            ):
                documents += [copy.deepcopy(document)] if selector.items() <= document_labels.items() else []
        return documents, "1"

    def create(self, document: Document, *, dry_run: bool = False) -> Document:
        kind, metadata = kind_of(document), document["metadata"]
        self._check("create", kind)
        self.before_create(document)
        if "generateName" in metadata:
            metadata = metadata | {"name": f"{metadata['generateName']}{next(self._uids)}"}
        key = self._key(kind, metadata.get("namespace", ""), metadata["name"])
        if key in self.objects:
            raise AlreadyExists(f"{kind.plural} {metadata['name']} exists")
        created = copy.deepcopy(document) | {"metadata": dict(metadata)}
        number = next(self._uids)
        created["metadata"] |= {"uid": f"uid-{number}", "creationTimestamp": f"2026-11-15T00:00:{number % 60:02}Z"}
        if kind.namespaced:
            created["metadata"]["namespace"] = key[1]
        if kind == SECRET:
            secret_text = created.pop("stringData", {})
            created["data"] = {name: base64.b64encode(value.encode()).decode() for name, value in secret_text.items()}
        if not dry_run:
            self.objects[key] = created
            self.calls.append(("create", f"{kind.kind} {metadata['name']}"))
        return copy.deepcopy(created)

    def patch(self, kind: ResourceKind, name: str, change: Document, namespace: str = "", sub: str = "") -> Document:
        self._check("patch", kind)
        self.calls.append(("patch", f"{kind.kind} {name}" + (f"/{sub}" if sub else "")))
        if (document := self.objects.get(self._key(kind, namespace, name))) is None:
            raise NotFound(f"{kind.plural} {name} is not there")
        _merge(document, change)
        return copy.deepcopy(document)

    def delete(
        self, kind: ResourceKind, name: str, namespace: str = "", grace_s: float | None = None, uid: str = ""
    ) -> bool:
        self._check("delete", kind)
        self.calls.append(("delete", f"{kind.kind} {name}"))
        return self.objects.pop(self._key(kind, namespace, name), None) is not None

    def is_allowed(self, verb: str, kind: ResourceKind, namespace: str = "", sub: str = "") -> bool:
        return (verb, f"{kind.plural}/{sub}" if sub else kind.plural) not in self.forbidden

    def logs(self, pod: str, namespace: str, *, follow: bool = False, **_: Any) -> Iterator[str]:
        yield from self.written.get(pod, [])

    def port_forward(self, pod: str, namespace: str, port: int) -> socket.socket:
        assert self.master is not None, "nobody listens in this pod"
        self.forwards.append(pod)
        return socket.create_connection(self.master)

    # Changes that the cluster itself would make.

    def run_master(self, name: str, pod: str = "", phase: str = "Running", **status: Any) -> None:
        labels = {"app.kubernetes.io/name": "elasticdl", "elasticdl.org/job": name, "elasticdl.org/role": "master"}
        metadata: dict[str, Any] = {"name": pod or f"{name}-master-0", "namespace": self.namespace, "labels": labels}
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [{"name": "master"}]},
        }
        self.create(document)
        self.objects[POD, self.namespace, metadata["name"]]["status"] = {"phase": phase} | status

    def run_replica(self, name: str, replica: str, lines: Sequence[str]) -> None:
        role = replica.partition("-")[0]
        labels = {"elasticdl.org/job": name, "elasticdl.org/role": role, "elasticdl.org/replica": replica}
        metadata: dict[str, Any] = {"name": f"{name}-{replica}", "namespace": self.namespace, "labels": labels}
        self.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}})
        self.objects[POD, self.namespace, metadata["name"]]["status"] = {"phase": "Running"}
        self.written[metadata["name"]] = lines

    def tell(self, name: str, **data: str) -> None:
        """Write the status of a job, as its master does."""
        labels = {"app.kubernetes.io/name": "elasticdl", "elasticdl.org/job": name, "elasticdl.org/role": "status"}
        metadata = {"name": f"{name}-status", "namespace": self.namespace, "labels": labels}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        files = {key.replace("_", "."): value for key, value in data.items()}
        self.objects[CONFIG_MAP, self.namespace, f"{name}-status"] = document | {"data": files}

    def end_job(self, name: str, result: Document) -> None:
        """End the job as a master does: its result is added to its status, and its pod is gone."""
        key = CONFIG_MAP, self.namespace, f"{name}-status"
        if key not in self.objects:
            self.tell(name)
        self.objects[key]["data"]["result.json"] = json.dumps(result)
        self.objects[STATEFUL_SET, self.namespace, f"{name}-master"]["spec"]["replicas"] = 0

    def _key(self, kind: ResourceKind, namespace: str, name: str) -> Key:
        return kind, (namespace or self.namespace) if kind.namespaced else "", name

    def _check(self, verb: str, kind: ResourceKind) -> None:
        if (verb, kind.plural) in self.forbidden:
            raise Forbidden(f"{ApiCall(verb, kind)} is forbidden")

    @property
    def object_names(self) -> Sequence[str]:
        """Kind and name of all objects except the namespace."""
        return [f"{kind.kind} {name}" for kind, _, name in self.objects if kind != NAMESPACE]


def _merge(place: Document, change: Document) -> None:
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(place.setdefault(key, {}), value)
        else:
            place[key] = value
