"""Certificates in a job directory: each replica has one of its own, which is renewed before it expires.

In a local job the launcher issues them to all replicas. The key of the authority is stored beside them while the job
runs, because a launcher that dies is replaced; only the job's owner can read it. A pod has only the certificate of its
replica: a master issues its own, workers and ps request theirs from the master (enrolment).
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory, write_private_file
from elasticdl.tls import CLOCK_SKEW_S, Role

if TYPE_CHECKING:
    from elasticdl.launcher.certificate_authority import CertificateAuthority

PERMANENT_ROLES = (Role.MASTER, Role.CLIENT)
MAX_CHECK_INTERVAL_S = 30.0  # how often the clock, which may jump, is read

AUTHORITY_KEY = "authority.key"
_log = logging.getLogger("elasticdl")

# Returns the key and the certificate of a replica, valid from this time; raises ElasticDLError if it cannot.
CertificateSource = Callable[[str, float], str]


def create_authority(directory: JobDirectory, spec: JobSpec, now: float) -> None:
    """Create the certificate authority of a job in its new directory."""
    from elasticdl.launcher.certificate_authority import CertificateAuthority

    authority = CertificateAuthority.create(spec.name, to_datetime(now))
    directory.certificates.mkdir(mode=0o700)
    write_private_file(directory.certificates / AUTHORITY_KEY, authority.key_pem)
    write_private_file(directory.authority, authority.pem)


def read_authority(directory: JobDirectory) -> CertificateAuthority:
    from elasticdl.launcher.certificate_authority import CertificateAuthority

    try:
        return CertificateAuthority.from_pem(
            directory.authority.read_text(), (directory.certificates / AUTHORITY_KEY).read_text()
        )
    except (OSError, ValueError) as exc:
        raise SpecError(
            f"{directory.certificates}: expected the certificate and the key of the job's authority ({exc}); "
            "use the version of ElasticDL that submitted the job"
        ) from exc


class CertificateManager:
    """Keeps a valid certificate for every living replica. Does nothing for a job without TLS."""

    def __init__(self, directory: JobDirectory, source: CertificateSource | None, lifetime_s: float) -> None:
        self._directory = directory
        self._source = source
        self._lifetime_s = lifetime_s
        self._issued_at: dict[str, float] = {}

    @classmethod
    def open(cls, directory: JobDirectory) -> CertificateManager:
        """A manager that issues certificates with the key of the job's authority."""
        security = directory.load_spec().security
        if not security.tls:
            return cls(directory, None, security.certificate_lifetime_s)
        authority = read_authority(directory)

        def issue(replica: str, now: float) -> str:
            return authority.issue(
                Role.from_replica(replica), replica, to_datetime(now), security.certificate_lifetime_s
            )

        return cls(directory, issue, security.certificate_lifetime_s)

    @property
    def check_interval_s(self) -> float | None:
        """How soon to call `renew_due`; None: never."""
        return min(MAX_CHECK_INTERVAL_S, self._lifetime_s / 4) if self._source else None

    def issue(self, replica: str, now: float) -> None:
        """Write a new certificate. Raises OSError if it cannot be written, ElasticDLError if it cannot be issued."""
        if self._source is None:
            return
        write_private_file(self._directory.certificates / f"{replica}.pem", self._source(replica, now))
        self._issued_at[replica] = now

    def try_issue(self, replicas: Iterable[str], now: float) -> None:
        """Write new certificates. One that fails is logged and tried again by the next `renew_due`."""
        for replica in replicas:
            try:
                self.issue(replica, now)
            except (OSError, ElasticDLError) as exc:
                _log.error("the certificate of %s cannot be renewed yet: %s", replica, exc)

    def stop_renewing(self, replica: str) -> None:
        """Stop renewing the certificate of a replica that has ended."""
        self._issued_at.pop(replica, None)

    def renew_due(self, now: float) -> None:
        """Renew certificates past half of their lifetime, and those not valid yet because the clock was set back."""
        half_s = self._lifetime_s / 2
        due = [
            name
            for name, issued_at in self._issued_at.items()
            if not issued_at - CLOCK_SKEW_S < now < issued_at + half_s
        ]
        self.try_issue(due, now)

    def close(self) -> None:
        """Delete the key of the authority: the job is over, and no replica joins it any more."""
        (self._directory.certificates / AUTHORITY_KEY).unlink(missing_ok=True)


def to_datetime(now: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(now, datetime.UTC)
