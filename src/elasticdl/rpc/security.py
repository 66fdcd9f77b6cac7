"""Who may speak: a bearer token in every call's metadata, and TLS where the job has certificates."""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc

from elasticdl.errors import SpecError
from elasticdl.spec import SecuritySpec

_KEY = "authorization"
_SCHEME = "Bearer "


def metadata(token: str) -> tuple[tuple[str, str], ...]:
    """What a client adds to every call."""
    return ((_KEY, _SCHEME + token),)


def is_authorized(received: Iterable[Any], token: str) -> bool:
    """Whether the metadata of a call carries the job's token, compared in constant time."""
    expected = (_SCHEME + token).encode()
    for key, value in received:
        if key == _KEY:
            given = value if isinstance(value, bytes) else str(value).encode()
            return hmac.compare_digest(given, expected)
    return False


def _read(path: str, field: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise SpecError(
            f"security.{field}: expected a readable PEM file, received {path!r} ({exc.strerror}); check the path"
        ) from exc


def check(security: SecuritySpec) -> None:
    """Raise SpecError where the files are not what TLS needs; grpc would only say that nobody answers."""
    for field in ("certificate", "key", "authority"):
        _read(getattr(security, field), field)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(security.authority)
    except OSError as exc:
        raise SpecError(
            f"security.authority (--tls_ca): {security.authority} holds no certificate in PEM form ({exc})"
        ) from exc
    try:
        context.load_cert_chain(security.certificate, security.key, password=_no_password)
    except (OSError, SpecError) as exc:
        raise SpecError(
            f"security.certificate, security.key (--tls_cert, --tls_key): {security.certificate} and {security.key} "
            f"are no certificate and its key in PEM form ({exc})"
        ) from exc


def _no_password() -> str:
    raise SpecError("the key is encrypted; store it without a password, readable by you alone")


def channel_credentials(security: SecuritySpec) -> grpc.ChannelCredentials | None:
    """TLS of a client that shows its own certificate; None where the job has none."""
    if not security.is_on:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=_read(security.authority, "authority"),
        private_key=_read(security.key, "key"),
        certificate_chain=_read(security.certificate, "certificate"),
    )


def server_credentials(security: SecuritySpec) -> grpc.ServerCredentials | None:
    """TLS of a server that wants its clients' certificates too; None where the job has none."""
    if not security.is_on:
        return None
    return grpc.ssl_server_credentials(
        [(_read(security.key, "key"), _read(security.certificate, "certificate"))],
        root_certificates=_read(security.authority, "authority"),
        require_client_auth=True,
    )
