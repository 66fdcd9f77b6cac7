"""Contexts and roles, with both ends of a handshake in memory: no socket, no thread."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest

from elasticdl import tls
from elasticdl.errors import AccessDenied, SpecError
from elasticdl.launcher.certificate_authority import CertificateAuthority
from elasticdl.tls import PeerIdentity, Role, TlsCredentials

NOW = datetime.datetime.now(datetime.UTC)


def identity(
    folder: Path, authority: CertificateAuthority, replica: str, *, now: datetime.datetime = NOW
) -> TlsCredentials:
    folder.mkdir(exist_ok=True)
    (folder / "authority.pem").write_text(authority.pem)
    own = folder / f"{replica}.pem"
    own.write_text(authority.issue(Role.from_replica(replica), replica, now, life_s=3600))
    return TlsCredentials(folder / "authority.pem", own, own, authority.job)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after a handshake; raises ssl.SSLError if one refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (server.wrap_bio(to_server, to_client, server_side=True), client.wrap_bio(to_client, to_server))
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for end in ends:
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                pass
    return ends


def test_both_ends_know_each_other_by_role(tmp_path: Path) -> None:
    authority = CertificateAuthority.create("mnist", NOW)
    ps, worker = identity(tmp_path, authority, "ps-0"), identity(tmp_path, authority, "worker-3")

    at_ps, at_worker = shake_hands(ps.server_context(), worker.client_context())

    assert at_ps.version() == "TLSv1.3"
    assert tls.check_peer(at_ps, ps, Role.WORKER, Role.PS) == PeerIdentity("mnist", Role.WORKER, "worker-3")
    assert tls.check_peer(at_worker, worker, Role.PS) == PeerIdentity("mnist", Role.PS, "ps-0")


def test_a_worker_cannot_speak_as_another_role(tmp_path: Path) -> None:
    authority = CertificateAuthority.create("mnist", NOW)
    ps, worker = identity(tmp_path, authority, "ps-0"), identity(tmp_path, authority, "worker-3")
    at_ps, _ = shake_hands(ps.server_context(), worker.client_context())

    with pytest.raises(AccessDenied, match="of a master or client of job mnist; received elasticdl://mnist/worker/"):
        tls.check_peer(at_ps, ps, Role.MASTER, Role.CLIENT)


def test_another_jobs_authority_is_refused_even_under_the_same_name(tmp_path: Path) -> None:
    ours = identity(tmp_path / "ours", CertificateAuthority.create("mnist", NOW), "worker-0")
    theirs = identity(tmp_path / "theirs", CertificateAuthority.create("mnist", NOW), "worker-1")

    with pytest.raises(ssl.SSLError):
        shake_hands(ours.server_context(), theirs.client_context())
    with pytest.raises(ssl.SSLError):
        shake_hands(theirs.server_context(), ours.client_context())


def test_who_shows_no_certificate_is_refused(tmp_path: Path) -> None:
    ours = identity(tmp_path, CertificateAuthority.create("mnist", NOW), "worker-0")
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE

    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
        shake_hands(ours.server_context(), stranger)


def test_a_certificate_that_has_expired_is_refused_and_the_next_one_is_read(tmp_path: Path) -> None:
    authority = CertificateAuthority.create("mnist", NOW - datetime.timedelta(days=9))
    master = identity(tmp_path, authority, "master")
    worker = identity(tmp_path, authority, "worker-0", now=NOW - datetime.timedelta(hours=2))
    with pytest.raises(ssl.SSLError, match="expired"):
        shake_hands(master.server_context(), worker.client_context())

    identity(tmp_path, authority, "worker-0")

    assert shake_hands(master.server_context(), worker.client_context())


def test_a_replica_is_no_authority(tmp_path: Path) -> None:
    authority = CertificateAuthority.create("mnist", NOW)
    pem = authority.issue(Role.WORKER, "worker-0", NOW, life_s=3600)
    key, certificate = pem[: pem.index("-----BEGIN CERT")], pem[pem.index("-----BEGIN CERT") :]
    usurper = CertificateAuthority(
        "mnist",
        CertificateAuthority.from_pem(certificate, key).certificate,
        CertificateAuthority.from_pem(certificate, key).key,
    )
    master, forged = identity(tmp_path, authority, "master"), identity(tmp_path / "forged", usurper, "master")
    (tmp_path / "forged" / "authority.pem").write_text(authority.pem)

    with pytest.raises(ssl.SSLError):
        shake_hands(master.server_context(), forged.client_context())


def test_files_of_a_person_have_no_roles(tmp_path: Path) -> None:
    authority = CertificateAuthority.create("anybody", NOW)
    own = identity(tmp_path, authority, "client")
    credentials = TlsCredentials(own.authority, own.certificate, own.key)
    at_server, _ = shake_hands(credentials.server_context(), credentials.client_context())

    assert tls.check_peer(at_server, credentials, Role.MASTER) is None


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    own = identity(tmp_path, CertificateAuthority.create("mnist", NOW), "worker-0")
    own.certificate.write_text("nothing")

    with pytest.raises(SpecError, match=r"worker-0\.pem .*not a certificate and its key"):
        own.server_context()


@pytest.mark.parametrize(
    "uri",
    ["", "elasticdl://mnist", "elasticdl://mnist/king/worker-0", "https://mnist/worker/worker-0", "elasticdl:///worker/a",
     "elasticdl://mnist/worker/", "elasticdl://mnist/worker/worker-0?a=b", "elasticdl://[mnist/worker/worker-0"],
)  # fmt: skip
def test_what_is_no_name_of_a_replica_is_nobody(uri: str) -> None:
    assert PeerIdentity.parse(uri) is None


@pytest.mark.parametrize("replica", ["worker-x", "ps-", "master-0", "client-1", "king", ""])
def test_only_replicas_have_a_role(replica: str) -> None:
    with pytest.raises(ValueError, match=r"expected worker-N|is not a valid"):
        Role.from_replica(replica)


def test_an_authority_is_read_back(tmp_path: Path) -> None:
    authority = CertificateAuthority.create("mnist", NOW)

    again = CertificateAuthority.from_pem(authority.pem, authority.key_pem)

    assert (again.job, again.pem) == ("mnist", authority.pem)
    with pytest.raises(ValueError, match="key of this authority"):
        CertificateAuthority.from_pem(authority.pem, CertificateAuthority.create("other", NOW).key_pem)


NAMES = ("worker-1", "worker-2", "worker", "ps-1", "ps", "master", "client")


def test_a_certificate_speaks_for_its_replica_and_that_of_a_role_for_nobody() -> None:
    replica, role = PeerIdentity("mnist", Role.WORKER, "worker-1"), PeerIdentity("mnist", Role.WORKER, "worker")

    assert [name for name in NAMES if replica.speaks_for(name)] == ["worker-1"]
    assert [name for name in NAMES if role.speaks_for(name)] == []


def test_a_replica_may_enroll_under_its_own_name_and_a_role_under_any_of_its_replicas() -> None:
    def enrolled(role: Role, name: str) -> list[str]:
        return [replica for replica in NAMES if PeerIdentity("mnist", role, name).can_enroll(replica)]

    assert enrolled(Role.WORKER, "worker-1") == ["worker-1"]
    assert enrolled(Role.WORKER, "worker") == ["worker-1", "worker-2"]
    assert enrolled(Role.PS, "ps") == ["ps-1"]
    assert enrolled(Role.MASTER, "master") == enrolled(Role.CLIENT, "client") == []


@pytest.mark.parametrize("role", [Role.WORKER, Role.PS])
def test_the_certificate_of_a_role_is_good_for_enrolment_alone(role: Role) -> None:
    uris = [PeerIdentity("mnist", role, role).uri]

    with pytest.raises(AccessDenied, match=f"received elasticdl://mnist/{role}/{role}, which is only for enrolment"):
        tls.check_certificate_uris(uris, "mnist", list(Role))
    assert tls.check_certificate_uris(uris, "mnist", list(Role), enrols=True) == PeerIdentity("mnist", role, role)


@pytest.mark.parametrize("role", [Role.MASTER, Role.CLIENT])
def test_masters_and_clients_have_no_numbers(role: Role) -> None:
    assert tls.check_certificate_uris([PeerIdentity("mnist", role, role).uri], "mnist", list(Role)) == PeerIdentity(
        "mnist", role, role
    )
