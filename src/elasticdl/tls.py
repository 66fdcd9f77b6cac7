"""Mutual TLS within one job: the identity of a replica, its credentials, and the check of a peer's certificate.

A certificate of the job's own authority names one replica by a URI, `elasticdl://JOB/worker/worker-3`. Each side
presents its own and refuses those of other authorities; the rights of a peer follow from its role, never from its
address, which changes whenever a replica is replaced.

    own = directory.tls_credentials(spec, "worker-3")          # None: the job has no TLS
    stream = own.server_context().wrap_socket(accepted, server_side=True)
    tls.check_peer(stream, own, tls.Role.WORKER)

Certificates are renewed while the job runs, so contexts are created for each new connection, or for a few at a time,
rather than once for a process. Open connections continue.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from elasticdl.errors import AccessDenied, SpecError

CLOCK_SKEW_S = 300.0  # certificates are valid before they are issued: clocks of other machines may be behind
_SCHEME = "elasticdl"


class Role(StrEnum):
    MASTER = "master"
    WORKER = "worker"
    PS = "ps"
    CLIENT = "client"  # users, the command line, schedulers

    @classmethod
    def from_replica(cls, replica: str) -> Role:
        """The role of a replica by its name, such as worker-3 or master. Raises ValueError for any other name."""
        role, dash, number = replica.partition("-")
        if not dash or (role in (cls.WORKER, cls.PS) and number.isdecimal()):
            return cls(role)
        raise ValueError(f"expected worker-N, ps-N or a role; received {replica!r}")


class PeerIdentity(NamedTuple):
    """The identity in a certificate."""

    job: str
    role: Role
    name: str  # of a replica; for a worker or a ps that has not enrolled yet, the name of its role

    @property
    def is_enrolled(self) -> bool:
        """Whether the certificate is for a replica, rather than for enrolment only."""
        return self.role in (Role.MASTER, Role.CLIENT) or self.name != self.role

    def speaks_for(self, replica: str) -> bool:
        return replica == self.name and self.is_enrolled

    def can_enroll(self, replica: str) -> bool:
        """Whether it may get a certificate of this name: a replica only its own, a role that of any of its replicas."""
        return replica.startswith(f"{self.role}-") and (replica == self.name or not self.is_enrolled)

    @property
    def uri(self) -> str:
        return f"{_SCHEME}://{self.job}/{self.role}/{self.name}"

    @property
    def host(self) -> str:
        """A host name that only this role of this job has, for gRPC, which verifies host names."""
        return f"{self.role}.{self.job}.{_SCHEME}"

    @classmethod
    def parse(cls, uri: str) -> PeerIdentity | None:
        """Parses the URI of a certificate; None if it does not name a peer."""
        try:
            parts = urlsplit(uri)
            _, role, name = parts.path.split("/")
            peer = cls(parts.netloc, Role(role), name)
        except ValueError:
            return None
        return peer if peer.uri == uri and peer.job and peer.name else None


@dataclass(frozen=True, slots=True)
class TlsCredentials:
    """The files with which one replica authenticates itself, and verifies the others of its job.

    `job` is empty if the user supplied the files: one certificate for all replicas, without a role. Then every
    certificate of the authority is accepted, and the job's token, which is always required, decides.
    """

    authority: Path
    certificate: Path
    key: Path
    job: str = ""

    def server_context(self) -> ssl.SSLContext:
        """For accepted connections: TLS 1.3 with the current certificates. Raises SpecError if they are invalid."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # every connection presents a certificate
        return context

    def client_context(self) -> ssl.SSLContext:
        """For connections that this side opens. Host names are not verified; `check_peer` verifies the role."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(self.authority)
        except OSError as exc:
            raise SpecError(
                f"security.ca (--tls_ca): {self.authority} has no certificate in PEM format ({exc})"
            ) from exc
        try:
            context.load_cert_chain(self.certificate, self.key, password=_refuse_password)
        except (OSError, SpecError) as exc:
            raise SpecError(
                f"security.certificate, security.key (--tls_cert, --tls_key): {self.certificate} and {self.key} "
                f"are not a certificate and its key in PEM format ({exc})"
            ) from exc
        return context

    def read_pem(self) -> PemBytes:
        """The contents of the files, for gRPC. Raises SpecError if one cannot be read."""
        return PemBytes(
            _read_pem_file(self.authority, "authority"),
            _read_pem_file(self.certificate, "certificate"),
            _read_pem_file(self.key, "key"),
        )


class PemBytes(NamedTuple):
    authority: bytes
    certificate: bytes
    key: bytes


def _read_pem_file(path: Path, field: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise SpecError(
            f"security.{field}: expected a readable PEM file, received {str(path)!r} ({exc.strerror}); check the path"
        ) from exc


def _refuse_password() -> str:
    raise SpecError("the key is encrypted; store it without a password, readable only by you")


def check_peer(stream: ssl.SSLSocket | ssl.SSLObject, own: TlsCredentials, *roles: Role) -> PeerIdentity | None:
    """The identity of the peer, which must have one of `roles` in this job. Raises AccessDenied.

    None if the certificates of the job have no roles.
    """
    return check_certificate_uris(_uris(stream), own.job, roles)


def check_certificate_uris(
    uris: Collection[str], job: str, roles: Collection[Role], *, enrols: bool = False
) -> PeerIdentity | None:
    """As `check_peer`, for the URIs of a certificate that is already verified.

    `enrols`: a certificate for enrolment is sufficient.
    """
    if not job:
        return None
    peer = _single_peer(uris)
    if peer is not None and peer.job == job and peer.role in roles and (enrols or peer.is_enrolled):
        return peer
    received = peer.uri if peer is not None else "a certificate without a role"
    if peer is not None and not peer.is_enrolled:
        received += ", which is only for enrolment"
    raise AccessDenied(f"expected the certificate of a {' or '.join(roles)} of job {job}; received {received}")


def _uris(stream: ssl.SSLSocket | ssl.SSLObject) -> list[str]:
    document = stream.getpeercert() or {}
    return [str(name[1]) for name in document.get("subjectAltName", ()) if name[0] == "URI"]


def _single_peer(uris: Collection[str]) -> PeerIdentity | None:
    """The identity in a certificate; None if it has none, or several."""
    peers = [peer for peer in map(PeerIdentity.parse, uris) if peer is not None]
    return peers[0] if len(peers) == 1 else None
