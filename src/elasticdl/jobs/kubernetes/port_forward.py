"""A connection from this machine to the master of a job on a cluster, through the API server's port-forward."""

from __future__ import annotations

import base64
import json
import select
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from elasticdl.errors import ElasticDLError, MasterUnreachable, SpecError
from elasticdl.kube.api import Api
from elasticdl.kube.kinds import CONFIG_MAP, POD, SECRET
from elasticdl.launcher.kubernetes import job_secrets
from elasticdl.launcher.kubernetes.manifest import MASTER_PORT
from elasticdl.launcher.kubernetes.naming import JOB_LABEL, MASTER, ROLE_LABEL, cluster_spec
from elasticdl.spec import JobSpec, SecuritySpec
from elasticdl.spec.directory import JobDirectory, write_private_file
from elasticdl.tls import Role

CHUNK_BYTES = 64 << 10
MAX_CONNECTIONS = 16  # at a time; a command needs one or two
ACCEPT_RETRY_S = 0.1  # pause after a failed accept, e.g. when descriptors have run out


@contextmanager
def reach_master(api: Api, namespace: str, name: str) -> Iterator[JobDirectory]:
    """A job directory with which `MasterClient` reaches the master inside the `with` block."""
    with tempfile.TemporaryDirectory(prefix="elasticdl-") as root:
        directory = JobDirectory(Path(root) / name)
        write_credentials(directory, api, namespace, name)
        with PortForward(partial(connect_master_pod, api, namespace, name)) as forward:
            write_private_file(directory.master, json.dumps({"address": f"127.0.0.1:{forward.port}"}))
            yield directory


def write_credentials(directory: JobDirectory, api: Api, namespace: str, name: str) -> None:
    """Write spec, token and certificates from the job's ConfigMap and Secret to `directory`."""
    spec = read_spec(api, namespace, name)
    secret = api.get(SECRET, f"{name}-secret", namespace)
    if secret is None:
        raise SpecError(f"job {name!r} has no Secret {name}-secret in namespace {namespace}: it was deleted")
    files = {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
    directory.root.mkdir(mode=0o700)
    write_private_file(directory.token, files[job_secrets.TOKEN_FILE])
    if cluster_spec(spec).tls:
        certificate = job_secrets.certificate_file(Role.CLIENT)
        if certificate not in files:
            raise SpecError(
                f"Secret {name}-secret has no {certificate}: job {name!r} was submitted by another version of "
                "ElasticDL; use that version"
            )
        directory.certificates.mkdir(mode=0o700)
        write_private_file(directory.authority, files[job_secrets.AUTHORITY_FILE])
        write_private_file(directory.certificates / certificate, files[certificate])
        spec = spec.model_copy(update={"security": SecuritySpec(tls=True)})
    write_private_file(directory.spec, spec.model_dump_json())


def read_spec(api: Api, namespace: str, name: str) -> JobSpec:
    config_map = api.get(CONFIG_MAP, f"{name}-spec", namespace)
    if config_map is None:
        raise SpecError(f"job {name!r} has no ConfigMap {name}-spec in namespace {namespace}: it was deleted")
    return JobSpec.model_validate_json(config_map["data"]["spec.json"])


def newest_master_pod(api: Api, namespace: str, name: str) -> dict[str, Any] | None:
    """The newest pod of the master."""
    pods, _ = api.list(POD, namespace, f"{JOB_LABEL}={name},{ROLE_LABEL}={MASTER}")
    return newest_pod(pods)


def newest_pod(pods: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The newest of several pods; one that is being deleted only if there is no other."""
    by_age = sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
    lasting = [pod for pod in by_age if not pod["metadata"].get("deletionTimestamp")]
    return (lasting or by_age)[-1] if pods else None


def connect_master_pod(api: Api, namespace: str, name: str) -> socket.socket:
    """A connection to the current pod of the master."""
    pod = newest_master_pod(api, namespace, name)
    phase = (pod or {}).get("status", {}).get("phase", "")
    if pod is None or phase != "Running":
        raise MasterUnreachable(f"the master of {name} has no running pod{f', it is {phase}' if phase else ''}")
    return api.port_forward(pod["metadata"]["name"], namespace, MASTER_PORT)


class PortForward:
    """Inside `with`, a port of this machine that forwards each connection over one from `dial`.

    If dialling fails, the connection is closed. If it takes longer than the client waits, the dialled connection
    is kept for the next client.
    """

    def __init__(self, dial: Callable[[], socket.socket]) -> None:
        self._dial = dial
        self.port = 0  # set by `with`
        self._open: set[socket.socket] = set()
        self._spare: socket.socket | None = None
        self._lock = threading.Lock()
        self._capacity = threading.Semaphore(MAX_CONNECTIONS)
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, name="port-forward", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        with self._lock:
            ends = [self._server, *self._open]
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it
        self._server.close()
        self._keep_spare(None)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                if self._closed.wait(ACCEPT_RETRY_S):
                    return
                continue
            if not self._capacity.acquire(blocking=False):
                client.close()  # other users of this machine can connect, too
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            self._forward(client)
        finally:
            self._capacity.release()

    def _forward(self, client: socket.socket) -> None:
        with client:
            try:
                master = self._take_spare() or self._dial()
            except (ElasticDLError, OSError):
                return  # the client sees a closed connection, and tries again
            if _is_closed_by_peer(client):
                self._keep_spare(master)
                return
            with master:
                master.settimeout(None)
                with self._lock:
                    self._open |= {client, master}
                back = threading.Thread(target=_copy_bytes, args=(master, client), daemon=True)
                back.start()
                _copy_bytes(client, master)
                back.join()
                with self._lock:
                    self._open -= {client, master}

    def _take_spare(self) -> socket.socket | None:
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None and _is_closed_by_peer(spare):
            spare.close()
            return None
        return spare

    def _keep_spare(self, master: socket.socket | None) -> None:
        with self._lock:
            master, self._spare = self._spare, master
        if master is not None:
            master.close()


def _is_closed_by_peer(end: socket.socket) -> bool:
    """Whether the other side has closed the connection."""
    poll = select.poll()
    poll.register(end, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def _copy_bytes(source: socket.socket, sink: socket.socket) -> None:
    """Copy until one side closes, then close both: HTTP/2 does not use half-open connections."""
    with suppress(OSError):
        while chunk := source.recv(CHUNK_BYTES):
            sink.sendall(chunk)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
