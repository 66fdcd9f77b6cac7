"""Calls to a Kubernetes API server. Objects are plain dictionaries; calls raise the errors of `kube.errors`."""

from __future__ import annotations

import json
import socket
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Self

from elasticdl.kube.connection import ApiConnection, LineStream, import_client
from elasticdl.kube.errors import ApiCall, ApiUnavailable, Conflict, NotFound, error_from_response
from elasticdl.kube.kinds import POD, ResourceKind, api_path, kind_of

Document = dict[str, Any]
Documents = list[Document]  # needed because within Api `list` is a method

ALL_NAMESPACES = "*"  # in place of a namespace

TIMEOUT_S = 15.0
PAGE_SIZE = 500
_PORT_FORWARD_THREAD = "Kubernetes port forward proxy"  # the client's threads have names that start with this
_ACCESS_REVIEW = ResourceKind(
    "authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)


def silence_port_forward_errors() -> None:
    """Keeps the traceback of the client's port-forward threads off the terminal: they fail when a pipe is closed."""
    original_hook = threading.excepthook
    if getattr(original_hook, "ignores_port_forwards", False):
        return

    def hook(failure: threading.ExceptHookArgs) -> None:
        is_forwarding = failure.thread is not None and failure.thread.name.startswith(_PORT_FORWARD_THREAD)
        if not (is_forwarding and isinstance(failure.exc_value, OSError)):
            original_hook(failure)

    hook.ignores_port_forwards = True  # type: ignore[attr-defined]
    threading.excepthook = hook


class WatchStream:
    """Yields (type, object) of each event: ADDED, MODIFIED, DELETED, BOOKMARK. `close` ends it, from any thread."""

    def __init__(self, call: ApiCall, lines: LineStream) -> None:
        self._call = call
        self._lines = lines

    def __iter__(self) -> Iterator[tuple[str, Document]]:
        return self

    def __next__(self) -> tuple[str, Document]:
        try:
            event = json.loads(next(self._lines))
        except ValueError as exc:  # an incomplete line
            raise ApiUnavailable(f"{self._call}: the connection was lost within an event") from exc
        if event["type"] == "ERROR":
            self.close()
            status = event["object"]
            raise error_from_response(self._call, int(status.get("code", 500)), json.dumps(status).encode())
        return event["type"], event["object"]

    def close(self) -> None:
        self._lines.close()


class Api:
    """Calls to one API server as one user. Thread-safe; `timeout_s` applies to each call."""

    def __init__(self, connection: ApiConnection, timeout_s: float = TIMEOUT_S) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self.server = connection.server
        self.context = connection.context  # "" in a pod
        self.namespace = connection.namespace  # of the context, or of the pod

    @classmethod
    def connect(cls, context: str = "", *, role: str = "", timeout_s: float = TIMEOUT_S) -> Self:
        """Connects as the pod's ServiceAccount, or by the kubeconfig. The first call opens the first connection.

        `role` appears in the API server's logs. `close` closes the connections, or the end of the last reference.
        """
        connection = ApiConnection.open(context, role)
        api = cls(connection, timeout_s)
        weakref.finalize(api, connection.close)
        return api

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, kind: ResourceKind, name: str, namespace: str = "") -> Document | None:
        try:
            return self._request(ApiCall("get", kind, self._resolve_namespace(kind, namespace), name), "GET")
        except NotFound:
            return None

    def list(
        self, kind: ResourceKind, namespace: str = "", labels: str = "", fields: str = ""
    ) -> tuple[Documents, str]:
        """The objects of a namespace, and the version to watch from. `fields`: a selector like metadata.name=mnist."""
        call = ApiCall("list", kind, self._resolve_namespace(kind, namespace))
        items: Documents = []
        continue_token = ""
        while True:
            page = self._request(
                call, "GET", labelSelector=labels, fieldSelector=fields, limit=PAGE_SIZE, **{"continue": continue_token}
            )
            # The server omits apiVersion and kind from the items of a list.
            items += [{"apiVersion": kind.api_version, "kind": kind.kind} | item for item in page["items"]]
            continue_token = page["metadata"].get("continue", "")
            if not continue_token:
                return items, page["metadata"]["resourceVersion"]

    def create(self, document: Document, *, dry_run: bool = False) -> Document:
        kind, metadata = kind_of(document), document["metadata"]
        call = ApiCall(
            "create", kind, self._resolve_namespace(kind, metadata.get("namespace", "")), metadata.get("name", "")
        )
        path = api_path(kind, call.namespace)
        return self._request(call, "POST", path=path, body=document, dryRun="All" if dry_run else "")

    def replace(self, document: Document) -> Document:
        """Replaces the object. Raises Conflict if it was changed since the document was read."""
        kind, metadata = kind_of(document), document["metadata"]
        call = ApiCall("update", kind, self._resolve_namespace(kind, metadata.get("namespace", "")), metadata["name"])
        return self._request(call, "PUT", body=document)

    def patch(self, kind: ResourceKind, name: str, change: Document, namespace: str = "", sub: str = "") -> Document:
        """Applies a JSON merge patch: None removes a field, a list replaces the whole list."""
        call = ApiCall("patch", kind, self._resolve_namespace(kind, namespace), name, sub)
        return self._request(call, "PATCH", body=change, content_type="application/merge-patch+json")

    def delete(
        self, kind: ResourceKind, name: str, namespace: str = "", grace_s: float | None = None, uid: str = ""
    ) -> bool:
        """Deletes the object and, in the background, what it owns.

        Returns False if it does not exist, or is not the object with this `uid`.
        """
        options: Document = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = int(grace_s)
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self._request(
                ApiCall("delete", kind, self._resolve_namespace(kind, namespace), name), "DELETE", body=options
            )
        except NotFound:
            return False
        except Conflict:
            if uid:
                return False
            raise
        return True

    def watch(
        self, kind: ResourceKind, namespace: str, labels: str, version: str, timeout_s: float, fields: str = ""
    ) -> WatchStream:
        """Watches what happens after `version` for `timeout_s`. Raises Gone if that version is too old."""
        call = ApiCall("watch", kind, self._resolve_namespace(kind, namespace))
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": max(1, int(timeout_s))}
        lines = self._connection.stream(
            call,
            api_path(kind, call.namespace),
            timeout_s=timeout_s + self._timeout_s,
            labelSelector=labels,
            fieldSelector=fields,
            resourceVersion=version,
            **query,
        )
        return WatchStream(call, lines)

    def logs(
        self, pod: str, namespace: str, *, follow: bool = False, tail: int | None = None, since_s: int | None = None
    ) -> Iterator[str]:
        """The log lines of a pod's only container; with `follow`, until the container ends."""
        call = ApiCall("get", POD, self._resolve_namespace(POD, namespace), pod, "log")
        lines = self._connection.stream(
            call,
            api_path(POD, call.namespace, pod, "log"),
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
        """The version of the server, such as v1.34.0."""
        call = ApiCall("get", ResourceKind("v1", "Version", "version", namespaced=False))
        return str(self._request(call, "GET", path="/version")["gitVersion"])

    def is_allowed(self, verb: str, kind: ResourceKind, namespace: str = "", sub: str = "") -> bool:
        """Whether this user has the right."""
        attributes = {"verb": verb, "group": kind.group, "resource": kind.plural, "subresource": sub}
        attributes["namespace"] = self._resolve_namespace(kind, namespace)
        review = {
            "apiVersion": _ACCESS_REVIEW.api_version,
            "kind": _ACCESS_REVIEW.kind,
            "spec": {"resourceAttributes": attributes},
        }
        reviewed = self._request(ApiCall("create", _ACCESS_REVIEW), "POST", body=review)
        return bool(reviewed["status"].get("allowed"))

    def serves(self, kind: ResourceKind) -> bool:
        """Whether the API server lists this kind for discovery; one that has just started may not list it yet."""
        call = ApiCall("get", kind)
        if kind.group:
            groups = self._request(call, "GET", path="/apis")["groups"]
            if kind.group not in [group["name"] for group in groups]:
                return False
        try:
            resource_list = self._request(
                call, "GET", path=f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
            )
        except NotFound:
            return False
        return kind.plural in [resource["name"] for resource in resource_list["resources"]]

    def port_forward(self, pod: str, namespace: str, port: int) -> socket.socket:
        """Opens a connection to a port of a pod, through the API server."""
        call = ApiCall("create", POD, self._resolve_namespace(POD, namespace), pod, "portforward")
        silence_port_forward_errors()
        # A separate client, because `portforward` changes the client that it is given while it connects.
        core = import_client("client").CoreV1Api(import_client("client").ApiClient(self._connection.configuration))
        connect = core.connect_get_namespaced_pod_portforward
        try:
            ports = import_client("stream").portforward(connect, pod, call.namespace, ports=str(port))
        except (import_client("client").ApiException, AttributeError) as exc:
            # Clients before version 37 raise AttributeError for a response without a body, with the error as context.
            api_error = exc.__context__ if isinstance(exc, AttributeError) else exc
            if not isinstance(api_error, import_client("client").ApiException):
                raise
            if not self.is_allowed("create", POD, call.namespace, "portforward"):
                raise error_from_response(call, 403, b"cannot create pods/portforward") from exc
            raise ApiUnavailable(f"{call}: {api_error.reason}") from exc
        return socket.socket(fileno=ports.socket(port).detach())

    def _resolve_namespace(self, kind: ResourceKind, namespace: str) -> str:
        if namespace == ALL_NAMESPACES:
            return ""
        return (namespace or self.namespace) if kind.namespaced else ""

    def _request(self, call: ApiCall, method: str, *, path: str = "", **options: Any) -> Document:
        path = path or api_path(call.kind, call.namespace, call.name, call.sub)
        return self._connection.request(call, method, path, timeout_s=self._timeout_s, **options)
