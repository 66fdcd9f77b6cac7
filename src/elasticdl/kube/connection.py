"""Requests to an API server, with the credentials, TLS and proxies that the official client finds.

The client's generated calls are not used, because they convert every object to a class of its own and back.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from elasticdl import __version__
from elasticdl.errors import SpecError
from elasticdl.extras import install_command
from elasticdl.kube.errors import ApiCall, ApiUnavailable, NoCluster, error_from_response

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CONNECT_TIMEOUT_S = 5.0
POOL_SIZE = 16  # connections kept open: for a few threads and a watch
_MALFORMED_ERRORS = (TypeError, AttributeError, KeyError, ValueError)  # raised by the client for a malformed kubeconfig
# Detects within half a minute that the server is gone without having closed the connection, on a watch too.
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 0x10), 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]


def import_client(module: str = "") -> Any:
    """Imports the package `kubernetes`, or one of its modules. Late, because most commands do not need it."""
    try:
        return import_module(f"kubernetes.{module}" if module else "kubernetes")
    except ModuleNotFoundError as exc:
        raise SpecError(
            f"the package {exc.name} is missing, which calls to Kubernetes need: " + install_command("kubernetes")
        ) from exc


def _unknown_context(context: str, contexts: list[str]) -> str:
    matches = get_close_matches(context, contexts, n=1)
    hint = f"; did you mean {matches[0]!r}? There are: " if matches else "; there are: "
    return f"there is no context {context!r} in the kubeconfig{hint}{', '.join(contexts) or 'none'}"


class LineStream:
    """The lines of a response as they arrive. `close` ends the iteration, from any thread."""

    def __init__(self, call: ApiCall, response: Any) -> None:
        self._call = call
        self._response = response
        self._lines = self._read()
        self._is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._lines)

    def close(self) -> None:
        self._is_closed = True
        with suppress(OSError, ValueError, AttributeError):
            # Must come before `close`, which waits for a thread that is reading.
            shutdown = getattr(self._response, "shutdown", None)  # since urllib3 2.3
            shutdown() if shutdown else self._response.connection.sock.shutdown(socket.SHUT_RDWR)
        self._response.close()

    def _read(self) -> Iterator[bytes]:
        import urllib3

        partial_line = b""
        try:
            for chunk in self._response.stream(amt=None, decode_content=False):
                *lines, partial_line = (partial_line + chunk).split(b"\n")
                yield from lines
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as exc:
            if not self._is_closed:
                raise ApiUnavailable(f"{self._call}: the connection was lost: {exc}") from exc
        finally:
            self._response.close()
        if partial_line and not self._is_closed:
            yield partial_line


class ApiConnection:
    """Sends requests to one API server. Thread-safe."""

    def __init__(self, configuration: Any, context: str, namespace: str, role: str = "") -> None:
        configuration.socket_options = _KEEPALIVE
        configuration.connection_pool_maxsize = POOL_SIZE
        self.configuration = configuration
        self.context = context
        self.namespace = namespace
        # Audit logs of the cluster distinguish masters, operator and scheduler by it.
        self.user_agent = f"elasticdl{'-' if role else ''}{role}/{__version__}"
        self._pool = import_client("client.rest").RESTClientObject(configuration).pool_manager

    @classmethod
    def open(cls, context: str = "", role: str = "") -> ApiConnection:
        """Opens a connection to the cluster of this pod, otherwise of the kubeconfig. `role` is for the user agent."""
        config = import_client("config")
        configuration = import_client("client").Configuration()
        if not context and os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
            # Tokens of pods are replaced every hour: the loader reads the file again each minute.
            config.load_incluster_config(client_configuration=configuration)
            return cls(configuration, "", (SERVICE_ACCOUNT / "namespace").read_text().strip(), role)
        # Passed explicitly, because the client reads the variable only once, when it is imported.
        kubeconfig = os.environ.get("KUBECONFIG") or "~/.kube/config"
        try:
            contexts, current = config.list_kube_config_contexts(config_file=kubeconfig)
            entries = {entry["name"]: entry for entry in contexts}
            entry = entries.get(context) if context else current
            if entry is None:
                raise NoCluster(_unknown_context(context, list(entries)))
            config.load_kube_config(kubeconfig, context=entry["name"], client_configuration=configuration)
        except (config.ConfigException, yaml.YAMLError, OSError, *_MALFORMED_ERRORS) as exc:
            raise NoCluster(
                f"no Kubernetes cluster to connect to: {exc} (kubeconfig {kubeconfig}); "
                "set KUBECONFIG, or try `kubectl cluster-info`"
            ) from exc
        return cls(configuration, entry["name"], entry["context"].get("namespace") or "default", role)

    @property
    def server(self) -> str:
        return str(self.configuration.host)

    def request(
        self,
        call: ApiCall,
        method: str,
        path: str,
        *,
        timeout_s: float,
        body: Any = None,
        content_type: str = "",
        **query: Any,
    ) -> dict[str, Any]:
        """Sends one request and returns the document of the response."""
        response = self._send(call, method, path, query, body, content_type, timeout_s)
        try:
            content_bytes = response.read()
        except _connection_errors() as exc:
            raise ApiUnavailable(f"{call}: the response of {self.server} was cut off: {exc}") from exc
        finally:
            response.release_conn()
        if response.status >= 400:
            raise error_from_response(call, response.status, content_bytes)
        document: dict[str, Any] = json.loads(content_bytes)
        return document

    def stream(self, call: ApiCall, path: str, *, timeout_s: float | None, **query: Any) -> LineStream:
        """Sends one request and streams lines until the server ends them, or is silent for `timeout_s`."""
        response = self._send(call, "GET", path, query, None, "", timeout_s)
        if response.status >= 400:
            content_bytes = response.read()
            response.release_conn()
            raise error_from_response(call, response.status, content_bytes)
        return LineStream(call, response)

    def close(self) -> None:
        self._pool.clear()

    def _send(
        self,
        call: ApiCall,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: Any,
        content_type: str,
        timeout_s: float | None,
    ) -> Any:
        from urllib.parse import urlencode

        import urllib3

        query_string = urlencode({name: value for name, value in query.items() if value not in ("", None)})
        headers = {"Accept": "application/json", "User-Agent": self.user_agent}
        if body is not None:
            headers["Content-Type"] = content_type or "application/json"
        for setting in self.configuration.auth_settings().values():
            headers[setting["key"]] = setting["value"]
        try:
            return self._pool.request(
                method,
                self.server + path + (f"?{query_string}" if query_string else ""),
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=timeout_s),
                preload_content=False,
                retries=False,
            )
        except _connection_errors() as exc:
            raise ApiUnavailable(f"{call}: the API server {self.server} does not answer: {exc}") from exc


def _connection_errors() -> tuple[type[Exception], ...]:
    import urllib3

    return (urllib3.exceptions.HTTPError, OSError)
