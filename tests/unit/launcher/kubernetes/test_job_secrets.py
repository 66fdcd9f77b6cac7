"""The secrets of one job, and the certificates by which its pods authenticate each other."""

from __future__ import annotations

import datetime
import json
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from elasticdl import tls
from elasticdl.errors import AccessDenied
from elasticdl.launcher.certificate_authority import CertificateAuthority
from elasticdl.launcher.kubernetes import job_secrets
from elasticdl.launcher.kubernetes.job_secrets import JobSecrets
from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.rpc import security
from elasticdl.spec.directory import write_private_file
from elasticdl.tls import Role, TlsCredentials
from tests.unit.launcher.jobs import SMALL, job

NOW = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)


def identity(secrets: JobSecrets, folder: Path, role: Role) -> TlsCredentials:
    """The credentials of a role's pods, from a folder with the files that they have."""
    folder.mkdir(exist_ok=True)
    for name in job_secrets.secret_files(job(SMALL), role):
        write_private_file(folder / name, secrets.to_files()[name])
    own = folder / job_secrets.certificate_file(role)
    return TlsCredentials(folder / job_secrets.AUTHORITY_FILE, own, own, "digits")


def handshake(server: TlsCredentials, client: TlsCredentials) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a connection after the handshake; ssl.SSLError if one has not accepted the other."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_context, client_context = server.server_context(), client.client_context()
    for context in (server_context, client_context):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    ends = (server_context.wrap_bio(up, down, server_side=True), client_context.wrap_bio(down, up))
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    return ends


def test_a_role_certificate_is_accepted_only_for_enrolment(tmp_path: Path) -> None:
    secrets = job_secrets.create_secrets(job(SMALL))
    worker, ps = (identity(secrets, tmp_path / role, role) for role in (Role.WORKER, Role.PS))

    at_worker, _ = handshake(worker, ps)

    with pytest.raises(AccessDenied, match="only for enrolment"):
        tls.check_peer(at_worker, worker, Role.PS)


def test_another_job_is_not_accepted(tmp_path: Path) -> None:
    ours, theirs = (
        identity(job_secrets.create_secrets(job(SMALL)), tmp_path / name, Role.WORKER) for name in ("a", "b")
    )

    with pytest.raises(ssl.SSLError):
        handshake(ours, theirs)


def test_pods_have_only_files_of_their_role_and_only_the_master_has_the_authoritys_key() -> None:
    assert job_secrets.secret_files(job(SMALL), "master") == ["token", "authority.pem", "authority.key"]
    assert job_secrets.secret_files(job(SMALL), "worker") == ["token", "authority.pem", "worker.pem", "ps-keys.json"]
    assert job_secrets.secret_files(job(SMALL), "ps") == ["token", "authority.pem", "ps.pem", "ps-keys.json"]
    assert job_secrets.secret_files(job(SMALL, tls=False), "worker") == ["token"]


def test_the_files_are_read_by_grpc_and_zeromq(tmp_path: Path) -> None:
    worker = identity(job_secrets.create_secrets(job(SMALL)), tmp_path / "ours", Role.WORKER)

    assert security.channel_credentials(worker) is not None
    assert CurveKeys.read(tmp_path / "ours" / "ps-keys.json").server_public


def test_certificates_in_the_secret_last_as_long_as_the_authority_and_are_valid_for_clocks_that_are_behind() -> None:
    secrets = job_secrets.create_secrets(job(SMALL), now=NOW)

    authority = x509.load_pem_x509_certificate(secrets.authority_pem.encode())
    for pem in secrets.certificates.values():
        certificate = x509.load_pem_x509_certificate(pem.encode())
        assert certificate.not_valid_after_utc == authority.not_valid_after_utc
        assert certificate.not_valid_before_utc == NOW - datetime.timedelta(minutes=5)


def test_the_authority_is_read_from_the_secret_and_nobody_else_is_one() -> None:
    secrets = job_secrets.create_secrets(job(SMALL))

    authority = x509.load_pem_x509_certificate(secrets.authority_pem.encode())
    for pem in secrets.certificates.values():
        certificate = x509.load_pem_x509_certificate(pem.encode())
        certificate.verify_directly_issued_by(authority)
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert CertificateAuthority.from_pem(secrets.authority_pem, secrets.to_files()["authority.key"]).job == "digits"
    assert set(secrets.certificates) == {Role.WORKER, Role.PS, Role.CLIENT}


def test_every_job_has_its_own_secrets_and_none_appears_in_text() -> None:
    first, second = job_secrets.create_secrets(job(SMALL)), job_secrets.create_secrets(job(SMALL))

    for name, text in first.to_files().items():
        assert text != second.to_files()[name]
    text = f"{first} {first!r} {[first]}"
    assert first.token not in text
    assert "PRIVATE" not in text
    assert json.loads(first.ps_keys_json)["client_secret"] not in text


def test_the_printed_secret_has_the_same_files() -> None:
    assert set(JobSecrets.placeholder("…", tls=True).to_files()) == set(
        job_secrets.create_secrets(job(SMALL)).to_files()
    )


def test_a_job_without_tls_has_only_a_token() -> None:
    assert (
        set(job_secrets.create_secrets(job(SMALL, tls=False)).to_files())
        == {"token"}
        == set(JobSecrets.placeholder("…", tls=False).to_files())
    )


def test_a_certificate_can_be_issued_for_the_longest_name() -> None:
    assert job_secrets.create_secrets(job(SMALL | {"name": "a" * 45})).certificates[Role.WORKER]
