"""Mutual TLS within one job: who a replica is, where its certificate lies, and who a peer has proven to be.

A certificate that the job's own authority issued names one replica by a URI, `elasticdl://JOB/worker/worker-3`. Each
side shows its own and refuses any other authority's; what the peer may do follows from its role, never from its
address, which changes whenever a replica is replaced.

    own = directory.identity(spec, "worker-3")          # None: the job has no TLS
    stream = own.server_context().wrap_socket(accepted, server_side=True)
    tls.check_peer(stream, own, tls.Role.WORKER)

Certificates are replaced while the job runs: a context is made for each new connection, or for a few at a time, and
not kept for as long as the process lives. Connections that stand go on.
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
    CLIENT = "client"  # people, the command line, schedulers

    @classmethod
    def from_replica(cls, replica: str) -> Role:
        """The role of a replica by its name, such as worker-3 or master. ValueError for any other name."""
        role, dash, number = replica.partition("-")
        if not dash or (role in (cls.WORKER, cls.PS) and number.isdecimal()):
            return cls(role)
        raise ValueError(f"expected worker-N, ps-N or a role; received {replica!r}")


class PeerIdentity(NamedTuple):
    """The identity in a certificate."""

    job: str
    role: Role
    name: str  # of a replica; or the role's, of a worker or a ps that has yet to enrol

    @property
    def is_enrolled(self) -> bool:
        """Whether the certificate is for a replica, rather than for enrolment only."""
        return self.role in (Role.MASTER, Role.CLIENT) or self.name != self.role

    def speaks_for(self, replica: str) -> bool:
        return replica == self.name and self.is_enrolled

    def can_enroll(self, replica: str) -> bool:
        """Whether it may have a certificate of this name: a replica its own again, else any of its role."""
        return replica.startswith(f"{self.role}-") and (replica == self.name or not self.is_enrolled)

    @property
    def uri(self) -> str:
        return f"{_SCHEME}://{self.job}/{self.role}/{self.name}"

    @property
    def host(self) -> str:
        """A name that only this role of this job has; by it a client of gRPC, which compares names, knows a master."""
        return f"{self.role}.{self.job}.{_SCHEME}"

    @classmethod
    def parse(cls, uri: str) -> PeerIdentity | None:
        """Parses the URI of a certificate; None where it is no such URI."""
        try:
            parts = urlsplit(uri)
            _, role, name = parts.path.split("/")
            found = cls(parts.netloc, Role(role), name)
        except ValueError:
            return None
        return found if found.uri == uri and found.job and found.name else None


@dataclass(frozen=True, slots=True)
class TlsCredentials:
    """The files by which one replica shows who it is, and knows others of its job.

    `job` is empty where a person gave the files: one certificate for all replicas, without a role. Then whoever has
    one of the authority is a member, and the job's token, which is asked for all the same, decides.
    """

    authority: Path
    certificate: Path
    key: Path
    job: str = ""

    def server_context(self) -> ssl.SSLContext:
        """For accepted connections: TLS 1.3 with the certificates as they are now. SpecError where they are none."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # each connection shows its certificate anew
        return context

    def client_context(self) -> ssl.SSLContext:
        """For connections this side opens. The peer's name is not compared: ask `check_peer` for its role."""
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
                f"security.ca (--tls_ca): {self.authority} holds no certificate in PEM form ({exc})"
            ) from exc
        try:
            context.load_cert_chain(self.certificate, self.key, password=_refuse_password)
        except (OSError, SpecError) as exc:
            raise SpecError(
                f"security.certificate, security.key (--tls_cert, --tls_key): {self.certificate} and {self.key} "
                f"are no certificate and its key in PEM form ({exc})"
            ) from exc
        return context

    def read_pem(self) -> PemBytes:
        """The same as text, for grpc. SpecError where a file cannot be read."""
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
    raise SpecError("the key is encrypted; store it without a password, readable by you alone")


def check_peer(stream: ssl.SSLSocket | ssl.SSLObject, own: TlsCredentials, *roles: Role) -> PeerIdentity | None:
    """Who the peer is, one of `roles` of this job; AccessDenied for anybody else. None: the job has no roles."""
    return check_certificate_uris(_uris(stream), own.job, roles)


def check_certificate_uris(
    uris: Collection[str], job: str, roles: Collection[Role], *, enrols: bool = False
) -> PeerIdentity | None:
    """The same for the URIs of a certificate that something else has verified. `enrols`: one for enrolment will do."""
    if not job:
        return None
    peer = _single_peer(uris)
    if peer is not None and peer.job == job and peer.role in roles and (enrols or peer.is_enrolled):
        return peer
    received = peer.uri if peer is not None else "a certificate without a role"
    if peer is not None and not peer.is_enrolled:
        received += ": it is for enrolment alone"
    raise AccessDenied(f"expected the certificate of a {' or '.join(roles)} of job {job}; received {received}")


def peer_role(stream: ssl.SSLSocket | ssl.SSLObject) -> Role | None:
    """The role in the peer's certificate; None where it has none."""
    peer = _single_peer(_uris(stream))
    return peer.role if peer is not None else None


def _uris(stream: ssl.SSLSocket | ssl.SSLObject) -> list[str]:
    document = stream.getpeercert() or {}
    return [str(name[1]) for name in document.get("subjectAltName", ()) if name[0] == "URI"]


def _single_peer(uris: Collection[str]) -> PeerIdentity | None:
    """Returns the one identity of a certificate; one with several is refused."""
    peers = [peer for peer in map(PeerIdentity.parse, uris) if peer is not None]
    return peers[0] if len(peers) == 1 else None
