"""Groups of members that are all in this process, over real connections."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path

from elasticdl.collective.group import Group
from elasticdl.collective.mesh import EarlyConnections, Mesh, RoundMember, connect_mesh
from elasticdl.collective.peers import ConnectionPurpose, PeerCredentials, PeerListener
from elasticdl.launcher.certificate_authority import CertificateAuthority
from elasticdl.tls import Role, TlsCredentials

HERE = "127.0.0.1"
SOON_S = 20.0
CREDENTIALS = PeerCredentials("", "the token of the job", run=1)
Identities = Callable[[str], TlsCredentials | None]
_rounds = count(1)


def issue_identities(place: Path) -> Identities:
    """Certificates of one job, for any worker."""
    now = datetime.datetime.now(datetime.UTC)
    authority = CertificateAuthority.create("mnist", now)
    (place / "authority.pem").write_text(authority.pem)

    def issue(replica: str) -> TlsCredentials:
        own = place / f"{replica}.pem"
        own.write_text(authority.issue(Role.from_replica(replica), replica, now, life_s=3600))
        return TlsCredentials(place / "authority.pem", own, own, authority.job)

    return issue


def build_meshes(size: int, identities: Identities = lambda replica: None) -> list[Mesh]:
    names = [f"worker-{rank}" for rank in range(size)]
    shown = [replace(CREDENTIALS, worker=name, tls=identities(name)) for name in names]
    arrivals = [EarlyConnections(SOON_S) for _ in range(size)]
    doors = [
        PeerListener(HERE, own, {ConnectionPurpose.ROUND: came.add}).start()
        for own, came in zip(shown, arrivals, strict=True)
    ]
    peers = [RoundMember(own.worker, door.address) for own, door in zip(shown, doors, strict=True)]
    number = next(_rounds)

    def meet(rank: int) -> Mesh:
        return connect_mesh(number, rank, peers, shown[rank], arrivals[rank], SOON_S)

    with ThreadPoolExecutor(size) as pool:
        meshes = list(pool.map(meet, range(size)))
    for door in doors:
        door.close()
    return meshes


def build_groups(size: int, identities: Identities = lambda replica: None) -> list[Group]:
    return [Group(mesh, rank, size) for rank, mesh in enumerate(build_meshes(size, identities))]
