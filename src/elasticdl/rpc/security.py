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
    """The metadata of every call. That of a worker or a ps names its run of the job."""
    return ((_TOKEN_KEY, _SCHEME + token),) + (() if run is None else ((_RUN_KEY, str(run)),))


def is_same_run(metadata: Iterable[Any], run: int) -> bool:
    """Whether the metadata of a call names this run of the job."""
    return any(key == _RUN_KEY and value == str(run) for key, value in metadata)


def is_authorized(metadata: Iterable[Any], token: str) -> bool:
    """Whether the metadata of a call has the job's token, compared in constant time."""
    expected = (_SCHEME + token).encode()
    for key, value in metadata:
        if key == _TOKEN_KEY:
            authorization = value if isinstance(value, bytes) else str(value).encode()
            return hmac.compare_digest(authorization, expected)
    return False


def channel_credentials(identity: tls.TlsCredentials | None) -> grpc.ChannelCredentials | None:
    """The credentials of a client with a certificate of its own; None in a job without TLS."""
    if identity is None:
        return None
    pems = identity.read_pem()
    return grpc.ssl_channel_credentials(pems.authority, pems.key, pems.certificate)


def channel_options(identity: tls.TlsCredentials | None) -> tuple[tuple[str, str], ...]:
    """If certificates have roles, the channel accepts only a master's, whatever its address is."""
    if identity is None or not identity.job:
        return ()
    return (("grpc.ssl_target_name_override", tls.PeerIdentity(identity.job, tls.Role.MASTER, "master").host),)


def server_credentials(identity: tls.TlsCredentials | None) -> grpc.ServerCredentials | None:
    """The credentials of a server that requires certificates of its clients; None in a job without TLS.

    A renewed certificate is used for connections that are opened afterwards.
    """
    if identity is None:
        return None
    loaded_mtimes: list[float] = []

    def fetch_renewed() -> grpc.ServerCertificateConfiguration | None:
        """Called for each new connection; None: the certificate has not changed."""
        try:
            mtimes = [path.stat().st_mtime for path in (identity.certificate, identity.key, identity.authority)]
            if mtimes == loaded_mtimes:
                return None
            configuration = _certificate_configuration(identity)
        except (OSError, SpecError) as exc:
            _log.error("the renewed certificate cannot be read, the previous one stays in use: %s", exc)
            return None
        loaded_mtimes[:] = mtimes
        return configuration

    initial = _certificate_configuration(identity)
    return grpc.dynamic_ssl_server_credentials(initial, fetch_renewed, True)  # type: ignore[arg-type]  # may be None


def _certificate_configuration(identity: tls.TlsCredentials) -> grpc.ServerCertificateConfiguration:
    pems = identity.read_pem()
    return grpc.ssl_server_certificate_configuration([(pems.key, pems.certificate)], pems.authority)


def check_role(context: Any, job: str, roles: Collection[tls.Role], *, enrols: bool = False) -> tls.PeerIdentity | None:
    """The identity of the caller. Raises AccessDenied if its role is not in `roles`.

    None: the job has no certificates, or they have no roles.
    """
    if not job:
        return None
    uris = [uri.decode(errors="replace") for uri in context.auth_context().get("peer_uri", ())]
    return tls.check_certificate_uris(uris, job, roles, enrols=enrols)
