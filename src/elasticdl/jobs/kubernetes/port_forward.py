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
from typing import Any

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
MAX_CONNECTIONS = 16  # through one bridge at a time; a command needs one or two
ACCEPT_RETRY_S = 0.1  # without accepting, when descriptors have run out


@contextmanager
def reach_master(api: Api, namespace: str, name: str) -> Iterator[JobDirectory]:
    """A directory by which `MasterClient` finds the master, for as long as the block lasts. Only its owner reads it."""
    with tempfile.TemporaryDirectory(prefix="elasticdl-") as root:
        directory = JobDirectory(Path(root) / name)
        write_credentials(directory, api, namespace, name)
        bridge = PortForward(partial(connect_master_pod, api, namespace, name))
        try:
            write_private_file(directory.master, json.dumps({"address": f"127.0.0.1:{bridge.port}"}))
            yield directory
        finally:
            bridge.close()


def write_credentials(directory: JobDirectory, api: Api, namespace: str, name: str) -> None:
    """Spec, token and certificates, as the job's ConfigMap and Secret have them."""
    spec = read_spec(api, namespace, name)
    secret = api.get(SECRET, f"{name}-secret", namespace)
    if secret is None:
        raise SpecError(f"job {name!r} has no Secret {name}-secret in namespace {namespace}: it was deleted, or ends")
    held = {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
    directory.root.mkdir(mode=0o700)
    write_private_file(directory.token, held[job_secrets.TOKEN_FILE])
    if cluster_spec(spec).tls:
        own = job_secrets.certificate_file(Role.CLIENT)
        if own not in held:
            raise SpecError(
                f"Secret {name}-secret has no {own}: another version of ElasticDL made job {name!r}; use that"
            )
        directory.certificates.mkdir(mode=0o700)
        write_private_file(directory.authority, held[job_secrets.AUTHORITY_FILE])
        write_private_file(directory.certificates / own, held[own])
        spec = spec.model_copy(update={"security": SecuritySpec(tls=True)})
    write_private_file(directory.spec, spec.model_dump_json())


def read_spec(api: Api, namespace: str, name: str) -> JobSpec:
    held = api.get(CONFIG_MAP, f"{name}-spec", namespace)
    if held is None:
        raise SpecError(f"job {name!r} has no ConfigMap {name}-spec in namespace {namespace}: it was deleted, or ends")
    return JobSpec.model_validate_json(held["data"]["spec.json"])


def newest_master_pod(api: Api, namespace: str, name: str) -> dict[str, Any] | None:
    """The newest pod of the master."""
    pods, _ = api.list(POD, namespace, f"{JOB_LABEL}={name},{ROLE_LABEL}={MASTER}")
    return newest_pod(pods)


def newest_pod(pods: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Of several; one that is being deleted only where there is no other."""
    order = sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
    lasting = [pod for pod in order if not pod["metadata"].get("deletionTimestamp")]
    return (lasting or order)[-1] if pods else None


def connect_master_pod(api: Api, namespace: str, name: str) -> socket.socket:
    """A connection to the master that runs now, whichever pod it is."""
    pod = newest_master_pod(api, namespace, name)
    phase = (pod or {}).get("status", {}).get("phase", "")
    if pod is None or phase != "Running":
        raise MasterUnreachable(f"the master of {name} has no running pod{f', it is {phase}' if phase else ''}")
    return api.port_forward(pod["metadata"]["name"], namespace, MASTER_PORT)


class PortForward:
    """A port of this machine; each connection to it goes on over one that `dial` gives, or is closed at once.

    Where dialling takes longer than whoever connects is willing to wait, the connection is kept for the next one.
    """

    def __init__(self, dial: Callable[[], socket.socket]) -> None:
        self._dial = dial
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._spare: socket.socket | None = None
        self._lock = threading.Lock()
        self._places = threading.Semaphore(MAX_CONNECTIONS)
        self._closed = threading.Event()
        threading.Thread(target=self._accept, name="bridge", daemon=True).start()

    def close(self) -> None:
        """Ends the connections, too."""
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
                near, _ = self._server.accept()
            except OSError:
                if self._closed.wait(ACCEPT_RETRY_S):
                    return
                continue
            if not self._places.acquire(blocking=False):
                near.close()  # other users of this machine can connect, too
                continue
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        try:
            self._forward(near)
        finally:
            self._places.release()

    def _forward(self, near: socket.socket) -> None:
        with near:
            try:
                far = self._take_spare() or self._dial()
            except (ElasticDLError, OSError):
                return  # whoever asked sees a closed connection, and tries again
            if _is_closed_by_peer(near):
                self._keep_spare(far)
                return
            with far:
                far.settimeout(None)
                with self._lock:
                    self._open |= {near, far}
                back = threading.Thread(target=_copy_bytes, args=(far, near), daemon=True)
                back.start()
                _copy_bytes(near, far)
                back.join()
                with self._lock:
                    self._open -= {near, far}

    def _take_spare(self) -> socket.socket | None:
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None and _is_closed_by_peer(spare):
            spare.close()
            return None
        return spare

    def _keep_spare(self, far: socket.socket | None) -> None:
        with self._lock:
            far, self._spare = self._spare, far
        if far is not None:
            far.close()


def _is_closed_by_peer(end: socket.socket) -> bool:
    """Whether the other side has closed it."""
    poll = select.poll()
    poll.register(end, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def _copy_bytes(source: socket.socket, sink: socket.socket) -> None:
    """Until one side ends; then the other is told. HTTP/2 has no use for half a connection."""
    with suppress(OSError):
        while piece := source.recv(CHUNK_BYTES):
            sink.sendall(piece)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
