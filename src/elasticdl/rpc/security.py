"""Authentication of calls: a bearer token in the metadata, and TLS where the job has certificates."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Collection, Iterable
from typing import Any

import grpc

from elasticdl import tls
from elasticdl.errors import SpecError

_log = logging.getLogger(__name__)

_TOKEN_KEY = "authorization"
_SCHEME = "Bearer "
_RUN_KEY = "elasticdl-run"


def call_metadata(token: str, run: int | None = None) -> tuple[tuple[str, str], ...]:
    """What a client adds to every call. A worker or a ps says of which run of the job it is."""
    return ((_TOKEN_KEY, _SCHEME + token),) + (() if run is None else ((_RUN_KEY, str(run)),))


def is_same_run(received: Iterable[Any], run: int) -> bool:
    """Whether the metadata of a call says that the caller belongs to this run of the job."""
    return any(key == _RUN_KEY and value == str(run) for key, value in received)


def is_authorized(received: Iterable[Any], token: str) -> bool:
    """Whether the metadata of a call carries the job's token, compared in constant time."""
    expected = (_SCHEME + token).encode()
    for key, value in received:
        if key == _TOKEN_KEY:
            given = value if isinstance(value, bytes) else str(value).encode()
            return hmac.compare_digest(given, expected)
    return False


def channel_credentials(identity: tls.TlsCredentials | None) -> grpc.ChannelCredentials | None:
    """TLS of a client that shows its own certificate; None where the job has none."""
    if identity is None:
        return None
    pems = identity.read_pem()
    return grpc.ssl_channel_credentials(pems.authority, pems.key, pems.certificate)


def channel_options(identity: tls.TlsCredentials | None) -> tuple[tuple[str, str], ...]:
    """Where certificates have roles, only a master's will do, whatever address it has."""
    if identity is None or not identity.job:
        return ()
    return (("grpc.ssl_target_name_override", tls.PeerIdentity(identity.job, tls.Role.MASTER, "master").host),)


def server_credentials(identity: tls.TlsCredentials | None) -> grpc.ServerCredentials | None:
    """TLS of a server that wants its clients' certificates too; None where the job has none.

    A certificate that is replaced is shown to whoever connects from then on.
    """
    if identity is None:
        return None
    shown: list[float] = []

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        """For each new connection; None: still the one before."""
        try:
            version = [path.stat().st_mtime for path in (identity.certificate, identity.key, identity.authority)]
            if version == shown:
                return None
            configuration = _certificate_configuration(identity)
        except (OSError, SpecError) as exc:
            _log.error("the certificate of before stays: %s", exc)
            return None
        shown[:] = version
        return configuration

    first = _certificate_configuration(identity)
    return grpc.dynamic_ssl_server_credentials(first, fetch, True)  # type: ignore[arg-type]  # the stubs forget None


def _certificate_configuration(identity: tls.TlsCredentials) -> grpc.ServerCertificateConfiguration:
    pems = identity.read_pem()
    return grpc.ssl_server_certificate_configuration([(pems.key, pems.certificate)], pems.authority)


def check_role(context: Any, job: str, roles: Collection[tls.Role], *, enrols: bool = False) -> tls.PeerIdentity | None:
    """Who calls: one of `roles`, or AccessDenied. None: certificates of this job have no roles, or it has none."""
    if not job:
        return None
    uris = [uri.decode(errors="replace") for uri in context.auth_context().get("peer_uri", ())]
    return tls.check_certificate_uris(uris, job, roles, enrols=enrols)
