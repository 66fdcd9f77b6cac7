"""Certificates in a job directory: each replica has one of its own, which is replaced in time.

Of a local job the launcher issues them to all. The key of the authority lies beside them for as long as the job runs,
because a launcher that dies has a successor; whoever may read it is the job's owner. In a pod there is the certificate
of its replica alone: a master issues its own, others ask the master (`enrolment`).
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
MAX_CHECK_INTERVAL_S = 30.0  # between two looks at the clock, which may jump

AUTHORITY_KEY = "authority.key"
_log = logging.getLogger("elasticdl")

CertificateSource = Callable[
    [str, float], str
]  # of key and certificate of a replica, from now on: ElasticDLError for none


def create_authority(directory: JobDirectory, spec: JobSpec, now: float) -> None:
    """For whoever makes the directory of a job."""
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
            "go on with the version of ElasticDL that submitted the job"
        ) from exc


class CertificateManager:
    """Keeps a valid certificate for every replica that lives. In a job that needs none, it does nothing."""

    def __init__(self, directory: JobDirectory, source: CertificateSource | None, lifetime_s: float) -> None:
        self._directory = directory
        self._source = source
        self._lifetime_s = lifetime_s
        self._issued_at: dict[str, float] = {}

    @classmethod
    def open(cls, directory: JobDirectory) -> CertificateManager:
        """One that has the key of the authority."""
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
        """How long one may wait before `renew`; None: for ever."""
        return min(MAX_CHECK_INTERVAL_S, self._lifetime_s / 4) if self._source else None

    def issue(self, replica: str, now: float) -> None:
        """OSError where it cannot be written, ElasticDLError where it cannot be had."""
        if self._source is None:
            return
        write_private_file(self._directory.certificates / f"{replica}.pem", self._source(replica, now))
        self._issued_at[replica] = now

    def try_issue(self, replicas: Iterable[str], now: float) -> None:
        """What cannot be had or written now will be at the next look."""
        for replica in replicas:
            try:
                self.issue(replica, now)
            except (OSError, ElasticDLError) as exc:
                _log.error("the certificate of %s cannot be replaced yet: %s", replica, exc)

    def stop_renewing(self, replica: str) -> None:
        """It has ended: its certificate is not replaced any more."""
        self._issued_at.pop(replica, None)

    def renew_due(self, now: float) -> None:
        """Replace what has half of its life behind it, or begins in what has become the future: clocks are set."""
        half_s = self._lifetime_s / 2
        due = [name for name, issued in self._issued_at.items() if not issued - CLOCK_SKEW_S < now < issued + half_s]
        self.try_issue(due, now)

    def close(self) -> None:
        """The job is over: nobody joins it any more."""
        (self._directory.certificates / AUTHORITY_KEY).unlink(missing_ok=True)


def to_datetime(now: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(now, datetime.UTC)
