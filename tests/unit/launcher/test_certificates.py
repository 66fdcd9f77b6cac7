"""Secrets of one job: certificates with which both sides are sure of each other."""

from __future__ import annotations

import datetime
import json
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from elasticdl.launcher import certificates
from elasticdl.launcher.certificates import JobSecrets
from elasticdl.ps.keys import Keys
from elasticdl.rpc import security
from elasticdl.spec import SecuritySpec
from elasticdl.spec.directory import write_private
from tests.unit.launcher.jobs import SMALL, job

NOW = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)
NAME = "digits-master.default.svc"


def place(secrets: JobSecrets, folder: Path) -> SecuritySpec:
    folder.mkdir()
    for name, text in secrets.files().items():
        write_private(folder / name, text)
    return SecuritySpec(certificate=f"{folder}/certificate.pem", key=f"{folder}/key.pem", authority=f"{folder}/ca.pem")


def context(paths: SecuritySpec, purpose: int) -> ssl.SSLContext:
    found = ssl.SSLContext(purpose)
    found.load_cert_chain(paths.certificate, paths.key)
    found.load_verify_locations(paths.authority)
    found.verify_mode = ssl.CERT_REQUIRED
    found.verify_flags |= ssl.VERIFY_X509_STRICT
    return found


def handshake(server: SecuritySpec, client: SecuritySpec, name: str) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends, after they have accepted each other; ssl.SSLError where one has not."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    asked = context(server, ssl.PROTOCOL_TLS_SERVER).wrap_bio(up, down, server_side=True)
    asking = context(client, ssl.PROTOCOL_TLS_CLIENT).wrap_bio(down, up, server_hostname=name)
    waiting = [asking, asked]
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    return asked, asking


@pytest.mark.parametrize("name", ["digits-master", "digits-master.default", NAME, "localhost", "127.0.0.1"])
def test_both_sides_accept_each_other_by_every_name_of_the_master(tmp_path: Path, name: str) -> None:
    paths = place(certificates.make(job(SMALL)), tmp_path / "ours")

    asked, asking = handshake(paths, paths, name)

    assert asked.getpeercert() == asking.getpeercert() != {}


def test_neither_another_job_nor_another_name_is_accepted(tmp_path: Path) -> None:
    ours, theirs = (place(certificates.make(job(SMALL)), tmp_path / name) for name in ("ours", "theirs"))

    with pytest.raises(ssl.SSLError):
        handshake(ours, theirs, NAME)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ours, ours, "other-master.default.svc")


def test_the_files_are_what_the_wire_wants(tmp_path: Path) -> None:
    paths = place(certificates.make(job(SMALL)), tmp_path / "ours")

    security.check(paths)
    assert security.channel_credentials(paths) is not None
    assert Keys.read(tmp_path / "ours" / "ps-keys.json").server_public


def test_a_certificate_holds_for_a_year_and_for_clocks_that_are_behind() -> None:
    secrets = certificates.make(job(SMALL), now=NOW)

    for pem in (secrets.ca_pem, secrets.certificate_pem):
        found = x509.load_pem_x509_certificate(pem.encode())
        assert found.not_valid_after_utc - NOW == datetime.timedelta(days=365)
        assert found.not_valid_before_utc == NOW - datetime.timedelta(minutes=5)


def test_the_authority_signs_nothing_else_and_its_key_is_nowhere() -> None:
    secrets = certificates.make(job(SMALL))

    certificate = x509.load_pem_x509_certificate(secrets.certificate_pem.encode())
    authority = x509.load_pem_x509_certificate(secrets.ca_pem.encode())
    certificate.verify_directly_issued_by(authority)
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert "".join(secrets.files().values()).count("PRIVATE KEY-----") == 2  # begin and end of one


def test_every_job_has_secrets_of_its_own_and_none_of_them_shows() -> None:
    first, second = certificates.make(job(SMALL)), certificates.make(job(SMALL))

    for name, text in first.files().items():
        assert text != second.files()[name]
    told = f"{first} {first!r} {[first]}"
    assert first.token not in told
    assert "PRIVATE" not in told
    assert json.loads(first.ps_keys_json)["client_secret"] not in told


def test_a_job_without_tls_has_a_token_alone() -> None:
    assert set(certificates.make(job(SMALL, tls=False)).files()) == {"token"}


def test_the_longest_name_has_a_certificate_too(tmp_path: Path) -> None:
    spec = job(SMALL | {"name": "a" * 45})
    paths = place(certificates.make(spec), tmp_path / "ours")

    handshake(paths, paths, f"{'a' * 45}-master.default.svc")
