"""How a worker or a ps in a pod gets its certificate: it makes a key, which never leaves the pod, and asks the master.

It shows the certificate that it has; where it has none yet, or that has run out, the one of its role, with which a
master grants nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from elasticdl.errors import AccessDenied, ElasticDLError, MasterUnreachable
from elasticdl.launcher.issuer import Issuer
from elasticdl.rpc.client import MasterClient
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.tls import Role


def issuer(directory: JobDirectory, spec: JobSpec, run: int) -> Issuer:
    """Keeps the certificates of replicas of this pod, by asking the master for them."""
    return Issuer(directory, partial(enroll, directory, spec, run), spec.security.lifetime_s)


def enroll(directory: JobDirectory, spec: JobSpec, run: int, replica: str, now: float) -> str:
    """A new key and its certificate, in one text.

    Without a valid certificate it waits for a master that is away as long as a worker does that has lost it: without
    one nothing can begin. A replica that has one tries no longer than a call takes; there is time to try again.
    """
    from elasticdl.launcher.authority import SigningRequest

    request = SigningRequest.make(replica)
    problem: ElasticDLError | None = None
    for shown, timeout_s in _attempts(directory, spec, replica, now):
        try:
            with MasterClient.connect(directory, timeout_s, run, shown) as master:
                return request.key_pem + master.enroll(replica, request.csr)
        except (AccessDenied, MasterUnreachable) as exc:
            problem = exc  # its clock and ours may differ about what has run out
    assert problem is not None
    raise problem


def _attempts(directory: JobDirectory, spec: JobSpec, replica: str, now: float) -> Iterator[tuple[str, float]]:
    """Whose certificate to show, and how long to wait for the master."""
    if has_valid(directory, replica, now):
        yield replica, spec.timing.rpc_s
        yield Role.of(replica), spec.timing.rpc_s
    else:
        yield Role.of(replica), spec.timing.orphan_s


def has_valid(directory: JobDirectory, replica: str, now: float) -> bool:
    from elasticdl.launcher.authority import expires_at

    try:
        return now < expires_at((directory.certificates / f"{replica}.pem").read_bytes())
    except (OSError, ValueError):
        return False
