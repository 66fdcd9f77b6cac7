"""Calls to a Kubernetes API server. Objects are plain dictionaries, failures are those of `errors`."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any, Self

from elasticdl.kube.connection import Connection, Lines, client
from elasticdl.kube.errors import ApiAway, Call, Conflict, NotThere, refusal
from elasticdl.kube.kinds import POD, Kind, of, path

Document = dict[str, Any]
Documents = list[Document]  # a name of its own: within Api, `list` is a method

EVERYWHERE = "*"  # as a namespace: all of them

TIMEOUT_S = 15.0
PAGE = 500
_FORWARDING = "Kubernetes port forward proxy"  # as the client calls its threads
_REVIEW = Kind("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)


def hush_forwarding() -> None:
    """The client's thread of a port-forward dies of a pipe that we closed, and would tell the terminal so."""
    before = threading.excepthook
    if getattr(before, "is_hushed", False):
        return

    def hook(died: threading.ExceptHookArgs) -> None:
        is_forwarding = died.thread is not None and died.thread.name.startswith(_FORWARDING)
        if not (is_forwarding and isinstance(died.exc_value, OSError)):
            before(died)

    hook.is_hushed = True  # type: ignore[attr-defined]
    threading.excepthook = hook


class Watch:
    """(type, object) as they happen: ADDED, MODIFIED, DELETED, BOOKMARK. `close` ends it, from any thread."""

    def __init__(self, call: Call, lines: Lines) -> None:
        self._call = call
        self._lines = lines

    def __iter__(self) -> Iterator[tuple[str, Document]]:
        return self

    def __next__(self) -> tuple[str, Document]:
        try:
            event = json.loads(next(self._lines))
        except ValueError as exc:  # half a line: the connection was cut within it
            raise ApiAway(f"{self._call}: the connection was cut within an event") from exc
        if event["type"] == "ERROR":
            self.close()
            status = event["object"]
            raise refusal(self._call, int(status.get("code", 500)), json.dumps(status).encode())
        return event["type"], event["object"]

    def close(self) -> None:
        self._lines.close()


class Api:
    """One API server, as one user. For any number of threads; `timeout_s` is for each call."""

    def __init__(self, connection: Connection, timeout_s: float = TIMEOUT_S) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self.server = connection.server
        self.context = connection.context  # "" in a pod
        self.namespace = connection.namespace  # that of the context

    @classmethod
    def connect(cls, context: str = "", *, role: str = "", timeout_s: float = TIMEOUT_S) -> Self:
        """In a pod as its ServiceAccount, else by the kubeconfig. Sends nothing yet. `role`: for its logs."""
        return cls(Connection.open(context, role), timeout_s)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, kind: Kind, name: str, namespace: str = "") -> Document | None:
        try:
            return self._ask(Call("get", kind, self._in(kind, namespace), name), "GET")
        except NotThere:
            return None

    def list(self, kind: Kind, namespace: str = "", labels: str = "", fields: str = "") -> tuple[Documents, str]:
        """All of a namespace, and the version to watch from. `fields`: as metadata.name=mnist."""
        call = Call("list", kind, self._in(kind, namespace))
        found: Documents = []
        more = ""
        while True:
            page = self._ask(call, "GET", labelSelector=labels, fieldSelector=fields, limit=PAGE, **{"continue": more})
            # In a list, the server leaves out of each what is the same for all.
            found += [{"apiVersion": kind.version, "kind": kind.kind} | item for item in page["items"]]
            more = page["metadata"].get("continue", "")
            if not more:
                return found, page["metadata"]["resourceVersion"]

    def create(self, document: Document, *, dry_run: bool = False) -> Document:
        kind, metadata = of(document), document["metadata"]
        call = Call("create", kind, self._in(kind, metadata.get("namespace", "")), metadata.get("name", ""))
        where = path(kind, call.namespace)
        return self._ask(call, "POST", where=where, body=document, dryRun="All" if dry_run else "")

    def replace(self, document: Document) -> Document:
        """Write the whole object; Conflict if it is not of the version the document was read at."""
        kind, metadata = of(document), document["metadata"]
        call = Call("update", kind, self._in(kind, metadata.get("namespace", "")), metadata["name"])
        return self._ask(call, "PUT", body=document)

    def patch(self, kind: Kind, name: str, change: Document, namespace: str = "", sub: str = "") -> Document:
        """A JSON merge patch: what is None is removed, lists are replaced whole."""
        call = Call("patch", kind, self._in(kind, namespace), name, sub)
        return self._ask(call, "PATCH", body=change, content="application/merge-patch+json")

    def delete(self, kind: Kind, name: str, namespace: str = "", grace_s: float | None = None, uid: str = "") -> bool:
        """False: it was not there, or (with `uid`) another of its name is. What it owns follows in the background."""
        options: Document = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = int(grace_s)
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self._ask(Call("delete", kind, self._in(kind, namespace), name), "DELETE", body=options)
        except NotThere:
            return False
        except Conflict:
            if uid:
                return False
            raise
        return True

    def watch(self, kind: Kind, namespace: str, labels: str, version: str, timeout_s: float, fields: str = "") -> Watch:
        """What happens after `version`, bookmarks too, for `timeout_s`; Gone if that is forgotten."""
        call = Call("watch", kind, self._in(kind, namespace))
        wanted = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": max(1, int(timeout_s))}
        lines = self._connection.stream(
            call,
            path(kind, call.namespace),
            timeout_s=timeout_s + self._timeout_s,
            labelSelector=labels,
            fieldSelector=fields,
            resourceVersion=version,
            **wanted,
        )
        return Watch(call, lines)

    def logs(
        self, pod: str, namespace: str, *, follow: bool = False, tail: int | None = None, since_s: int | None = None
    ) -> Iterator[str]:
        """Lines of a pod's only container; with `follow` until it ends."""
        call = Call("get", POD, self._in(POD, namespace), pod, "log")
        lines = self._connection.stream(
            call,
            path(POD, call.namespace, pod, "log"),
            timeout_s=None if follow else self._timeout_s,
            follow="true" if follow else "",
            tailLines=tail,
            sinceSeconds=since_s,
        )
        try:
            for line in lines:
                yield line.decode(errors="replace")
        finally:
            lines.close()

    def version(self) -> str:
        """Of the server, as it names itself: v1.34.0."""
        call = Call("get", Kind("v1", "Version", "version", namespaced=False))
        return str(self._ask(call, "GET", where="/version")["gitVersion"])

    def may(self, verb: str, kind: Kind, namespace: str = "", sub: str = "") -> bool:
        """Whether we have the right."""
        asked = {"verb": verb, "group": kind.group, "resource": kind.plural, "subresource": sub}
        asked["namespace"] = self._in(kind, namespace)
        review = {"apiVersion": _REVIEW.version, "kind": _REVIEW.kind, "spec": {"resourceAttributes": asked}}
        answer = self._ask(Call("create", _REVIEW), "POST", body=review)
        return bool(answer["status"].get("allowed"))

    def serves(self, kind: Kind) -> bool:
        """Whether the API server names this kind where clients look for it; one that just started may not yet."""
        call = Call("get", kind)
        if kind.group:
            groups = self._ask(call, "GET", where="/apis")["groups"]
            if kind.group not in [group["name"] for group in groups]:
                return False
        try:
            found = self._ask(call, "GET", where=f"/apis/{kind.version}" if kind.group else f"/api/{kind.version}")
        except NotThere:
            return False
        return kind.plural in [one["name"] for one in found["resources"]]

    def forward(self, pod: str, namespace: str, port: int) -> socket.socket:
        """One connection to a port of a pod, through the API server."""
        call = Call("create", POD, self._in(POD, namespace), pod, "portforward")
        hush_forwarding()
        # A client of its own: `portforward` bends the one it is given while it connects.
        core = client("client").CoreV1Api(client("client").ApiClient(self._connection.configuration))
        connect = core.connect_get_namespaced_pod_portforward
        try:
            ports = client("stream").portforward(connect, pod, call.namespace, ports=str(port))
        except (client("client").ApiException, AttributeError) as exc:
            # Clients before version 37 stumble over an answer without a body: what it said is the error's context.
            answer = exc.__context__ if isinstance(exc, AttributeError) else exc
            if not isinstance(answer, client("client").ApiException):
                raise
            if not self.may("create", POD, call.namespace, "portforward"):
                raise refusal(call, 403, b"cannot create pods/portforward") from exc
            raise ApiAway(f"{call}: {answer.reason}") from exc
        return socket.socket(fileno=ports.socket(port).detach())

    def _in(self, kind: Kind, namespace: str) -> str:
        if namespace == EVERYWHERE:
            return ""
        return (namespace or self.namespace) if kind.namespaced else ""

    def _ask(self, call: Call, method: str, *, where: str = "", **asked: Any) -> Document:
        where = where or path(call.kind, call.namespace, call.name, call.sub)
        return self._connection.ask(call, method, where, timeout_s=self._timeout_s, **asked)
