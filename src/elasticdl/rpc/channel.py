"""Opening a channel to the master, and turning grpc's errors into ours."""

from __future__ import annotations

from typing import Any

import grpc

from elasticdl.errors import AccessDenied, ElasticDLError, MasterUnreachable, SpecError
from elasticdl.rpc import security
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory, read_json

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.enable_http_proxy", 0),
    # Channels of one process share connections and, worse, their backoff, unless told not to.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 1000),  # in fact the least time one connection attempt gets
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
)


def address(directory: JobDirectory) -> str:
    """Where the master says it listens; MasterUnreachable where it has not said so yet."""
    document = read_json(directory.master)
    if document is None:
        raise MasterUnreachable(f"{directory.master} does not exist: the master of this job has not started yet")
    return str(document["address"])


def open_channel(where: str, spec: JobSpec) -> grpc.Channel:
    credentials = security.channel_credentials(spec.security)
    if credentials is None:
        return grpc.insecure_channel(where, options=OPTIONS)
    return grpc.secure_channel(where, credentials, options=OPTIONS)


_CUT = ("handshake read failed", "handshaker shutdown")


def translate(error: Any, where: str) -> ElasticDLError:
    """What a caller can do about a failed call."""
    code, details = error.code(), error.details() or ""
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return AccessDenied(f"the master at {where} refused the token of this job: {details}")
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
        return SpecError(details)
    told = details.lower()
    # A connection that is cut within the handshake says nothing about certificates: the way there ended, as that
    # through an API server does while nobody listens in the pod, or that to a Service whose pod is gone.
    is_cut = any(words in told for words in _CUT) and "certificate" not in told
    if not is_cut and ("handshake" in told or "certificate" in told):
        return AccessDenied(
            f"the master at {where} and this side do not accept each other's certificates ({details}); "
            "--tls_ca must name the authority that signed --tls_cert"
        )
    return MasterUnreachable(f"the master at {where} does not answer: {code.name.lower()}: {details}")
