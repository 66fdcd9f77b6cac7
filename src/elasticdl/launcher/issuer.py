"""Certificates of a local job: its launcher issues one to each replica and replaces it in time.

All files lie in the job directory, private to its owner. The key of the authority stays there for as long as the job
runs, because a launcher that dies has a successor; whoever may read it is the job's owner.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory, write_private
from elasticdl.tls import SKEW_S, Role

if TYPE_CHECKING:
    from elasticdl.launcher.authority import Authority

ALWAYS = (Role.MASTER, Role.CLIENT)
LOOK_S = 30.0  # between two looks at the clock, which may jump

_KEY = "authority.key"
_log = logging.getLogger("elasticdl")


def make_authority(directory: JobDirectory, spec: JobSpec, now: float) -> None:
    """For whoever makes the directory of a job."""
    from elasticdl.launcher.authority import Authority

    authority = Authority.make(spec.name, _instant(now))
    directory.certificates.mkdir(mode=0o700)
    write_private(directory.certificates / _KEY, authority.key_pem)
    write_private(directory.authority, authority.pem)


class Issuer:
    """Keeps a valid certificate for every replica that lives. In a job that needs none, it does nothing."""

    def __init__(self, directory: JobDirectory, authority: Authority | None, lifetime_s: float) -> None:
        self._directory = directory
        self._authority = authority
        self._lifetime_s = lifetime_s
        self._issued_at: dict[str, float] = {}

    @classmethod
    def open(cls, directory: JobDirectory) -> Issuer:
        security = directory.load_spec().security
        if not security.tls:
            return cls(directory, None, security.lifetime_s)
        from elasticdl.launcher.authority import Authority

        authority = Authority.read(directory.authority.read_text(), (directory.certificates / _KEY).read_text())
        return cls(directory, authority, security.lifetime_s)

    @property
    def wait_s(self) -> float | None:
        """How long the launcher may wait before `renew`; None: for ever."""
        return min(LOOK_S, self._lifetime_s / 4) if self._authority else None

    def issue(self, replica: str, now: float) -> None:
        """OSError where it cannot be written."""
        if self._authority is None:
            return
        pem = self._authority.issue(Role.of(replica), replica, _instant(now), self._lifetime_s)
        write_private(self._directory.certificates / f"{replica}.pem", pem)
        self._issued_at[replica] = now

    def issue_again(self, replicas: Iterable[str], now: float) -> None:
        """What cannot be written now will be at the next look."""
        for replica in replicas:
            try:
                self.issue(replica, now)
            except OSError as exc:
                _log.error("the certificate of %s cannot be written: %s", replica, exc.strerror)

    def forget(self, replica: str) -> None:
        """It has ended: its certificate is not replaced any more."""
        self._issued_at.pop(replica, None)

    def renew(self, now: float) -> None:
        """Replace what has half of its life behind it, or begins in what has become the future: clocks are set."""
        half_s = self._lifetime_s / 2
        due = [name for name, issued in self._issued_at.items() if not issued - SKEW_S < now < issued + half_s]
        self.issue_again(due, now)

    def close(self) -> None:
        """The job is over: nobody joins it any more."""
        (self._directory.certificates / _KEY).unlink(missing_ok=True)


def _instant(now: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(now, datetime.UTC)
