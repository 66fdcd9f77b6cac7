"""Channels to the master, and the conversion of grpc's errors to ElasticDL's."""

from __future__ import annotations

from functools import cache
from typing import Any

import grpc

from elasticdl import tls
from elasticdl.errors import AccessDenied, ElasticDLError, MasterUnreachable, RunSuperseded, SpecError, StateDamaged
from elasticdl.rpc import security
from elasticdl.spec.directory import JobDirectory, read_json

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.enable_http_proxy", 0),
    # Otherwise the channels of one process share connections and their backoff.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 1000),  # also the minimum time of a connection attempt
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
)


def master_address(directory: JobDirectory) -> str:
    """The address that the master has written into the job directory. Raises MasterUnreachable if there is none yet."""
    try:
        document = read_json(directory.master)
    except StateDamaged as exc:
        raise MasterUnreachable(f"{exc}; the next master of the job writes it again") from exc
    if document is None:
        raise MasterUnreachable(f"{directory.master} does not exist: the master of this job has not started yet")
    return str(document["address"])


def open_channel(address: str, identity: tls.TlsCredentials | None) -> grpc.Channel:
    """Opens a channel with the current certificate. Open a new one to reconnect with a renewed certificate."""
    _keep_grpc_alive()
    credentials = security.channel_credentials(identity)
    if credentials is None:
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.secure_channel(address, credentials, options=(*CHANNEL_OPTIONS, *security.channel_options(identity)))


@cache
def _keep_grpc_alive() -> grpc.Channel:
    """An unused channel. grpc ends its event engine with its last channel, and aborts the process if it has no file
    descriptor left to start another."""
    return grpc.insecure_channel("localhost:0", options=CHANNEL_OPTIONS)


_LOST_CONNECTION_MESSAGES = ("handshake read failed", "handshaker shutdown")


def error_from_grpc(error: Any, address: str) -> ElasticDLError:
    """The error for a failed call, by what the caller can do."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return AccessDenied(f"the master at {address} refused the token of this job: {details}")
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return AccessDenied(f"the master at {address} refused the certificate of this replica: {details}")
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        return RunSuperseded(f"the master at {address} refused this process: {details}")
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return SpecError(details)
    text = details.lower()
    # A connection that is lost within the handshake is not about certificates: a port-forward through the API server
    # ends like this while the pod does not listen, and so does a connection to a Service without a pod.
    is_lost = any(message in text for message in _LOST_CONNECTION_MESSAGES) and "certificate" not in text
    if not is_lost and any(word in text for word in ("handshake", "certificate", "verification check")):
        return AccessDenied(
            f"the master at {address} and this side do not accept each other's certificates ({details}); "
            "both must be of this job; --tls_ca must name the authority that signed --tls_cert"
        )
    return MasterUnreachable(f"the master at {address} does not answer: {code.name.lower()}: {details}")
