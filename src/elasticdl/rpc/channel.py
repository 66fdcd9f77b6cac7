"""Opening a channel to the master, and turning grpc's errors into ours."""

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


def master_address(directory: JobDirectory) -> str:
    """Where the master says it listens; MasterUnreachable where it has not said so yet."""
    try:
        document = read_json(directory.master)
    except StateDamaged as exc:
        raise MasterUnreachable(f"{exc}; the next master of the job writes it anew") from exc
    if document is None:
        raise MasterUnreachable(f"{directory.master} does not exist: the master of this job has not started yet")
    return str(document["address"])


def open_channel(where: str, identity: tls.TlsCredentials | None) -> grpc.Channel:
    """With the certificate as it is now: whoever connects again opens a channel anew."""
    _keep_grpc_alive()
    credentials = security.channel_credentials(identity)
    if credentials is None:
        return grpc.insecure_channel(where, options=CHANNEL_OPTIONS)
    return grpc.secure_channel(where, credentials, options=(*CHANNEL_OPTIONS, *security.channel_options(identity)))


@cache
def _keep_grpc_alive() -> grpc.Channel:
    """A channel that nobody uses. With its last channel grpc ends its event engine, and where it finds no descriptor to
    begin another it aborts the process."""
    return grpc.insecure_channel("localhost:0", options=CHANNEL_OPTIONS)


_CUT_MESSAGES = ("handshake read failed", "handshaker shutdown")


def error_from_grpc(error: Any, where: str) -> ElasticDLError:
    """What a caller can do about a failed call."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return AccessDenied(f"the master at {where} refused the token of this job: {details}")
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return AccessDenied(f"the master at {where} refused the certificate of this replica: {details}")
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        return RunSuperseded(f"the master at {where} refused this process: {details}")
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return SpecError(details)
    told = details.lower()
    # A connection that is cut within the handshake says nothing about certificates: the way there ended, as that
    # through an API server does while nobody listens in the pod, or that to a Service whose pod is gone.
    is_cut = any(words in told for words in _CUT_MESSAGES) and "certificate" not in told
    if not is_cut and any(word in told for word in ("handshake", "certificate", "verification check")):
        return AccessDenied(
            f"the master at {where} and this side do not accept each other's certificates ({details}); "
            "both must be of this job; --tls_ca must name the authority that signed --tls_cert"
        )
    return MasterUnreachable(f"the master at {where} does not answer: {code.name.lower()}: {details}")
