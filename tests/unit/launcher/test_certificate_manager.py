from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from elasticdl.errors import AccessDenied, ElasticDLError, MasterUnreachable
from elasticdl.launcher.certificate_manager import CertificateManager
from elasticdl.launcher.local import job_directory
from elasticdl.spec import JobKind, JobSpec, SecuritySpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.job import ScriptSpec

NOW = 1_800_000_000.0
HOUR_S = 3600.0


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    spec = JobSpec(
        name="mnist",
        kind=JobKind.SCRIPT,
        script=ScriptSpec(path="train.py"),
        security=SecuritySpec(tls=True, certificate_lifetime_s=HOUR_S),
    )
    directory = JobDirectory(tmp_path / "mnist")
    job_directory.create_job_directory(directory, spec)
    return directory


def issued(directory: JobDirectory, replica: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((directory.certificates / f"{replica}.pem").read_bytes())


def test_a_replica_gets_a_certificate_of_its_own_for_as_long_as_the_job_says(directory: JobDirectory) -> None:
    manager = CertificateManager.open(directory)

    manager.issue("worker-1", NOW)

    certificate = issued(directory, "worker-1")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["elasticdl://mnist/worker/worker-1"]
    assert certificate.not_valid_after_utc.timestamp() == NOW + HOUR_S
    assert all(path.stat().st_mode & 0o077 == 0 for path in (directory.certificates, *directory.certificates.iterdir()))


def test_a_certificate_is_replaced_at_half_of_its_life_and_not_before(directory: JobDirectory) -> None:
    manager = CertificateManager.open(directory)
    manager.issue("worker-1", NOW)
    first = issued(directory, "worker-1")

    manager.renew_due(NOW + 0.49 * HOUR_S)
    assert issued(directory, "worker-1") == first

    manager.renew_due(NOW + 0.5 * HOUR_S)
    assert issued(directory, "worker-1") != first


def test_a_clock_that_is_set_back_gives_no_certificate_that_starts_in_the_future(directory: JobDirectory) -> None:
    manager = CertificateManager.open(directory)
    manager.issue("master", NOW)

    manager.renew_due(NOW - 5 * HOUR_S)

    assert issued(directory, "master").not_valid_before_utc.timestamp() < NOW - 5 * HOUR_S
    authority = x509.load_pem_x509_certificate(directory.authority.read_bytes())
    assert authority.not_valid_before_utc.timestamp() < NOW - 5 * HOUR_S


def test_the_certificate_of_an_ended_replica_is_not_renewed_and_the_next_launcher_issues_new_ones(
    directory: JobDirectory,
) -> None:
    CertificateManager.open(directory).issue("worker-1", NOW)
    first = issued(directory, "worker-1")

    manager = CertificateManager.open(directory)
    manager.try_issue(["worker-2"], NOW)
    manager.stop_renewing("worker-2")
    manager.renew_due(NOW + HOUR_S)

    assert issued(directory, "worker-1") == first
    assert issued(directory, "worker-2").not_valid_after_utc.timestamp() == NOW + HOUR_S


def test_a_certificate_that_cannot_be_issued_is_logged_and_tried_again_at_the_next_check(
    directory: JobDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[str | ElasticDLError] = ["first", MasterUnreachable("no answer"), AccessDenied("not now"), "second"]
    requests = []

    def source(replica: str, now: float) -> str:
        requests.append((replica, now))
        answer = answers.pop(0)
        if isinstance(answer, ElasticDLError):
            raise answer
        return answer

    def certificate_at(after_s: float) -> str:
        manager.renew_due(NOW + after_s)
        return (directory.certificates / "worker-1.pem").read_text()

    manager = CertificateManager(directory, source, HOUR_S)
    manager.issue("worker-1", NOW)

    assert [certificate_at(part * HOUR_S) for part in (0.4, 0.5, 0.6, 0.7, 0.8)] == ["first"] * 3 + ["second"] * 2
    assert [now - NOW for _, now in requests] == [0.0, 0.5 * HOUR_S, 0.6 * HOUR_S, 0.7 * HOUR_S]
    assert [record.getMessage() for record in caplog.records] == [
        "the certificate of worker-1 cannot be renewed yet: no answer",
        "the certificate of worker-1 cannot be renewed yet: not now",
    ]


def test_after_the_job_no_certificate_can_be_issued(directory: JobDirectory) -> None:
    CertificateManager.open(directory).close()

    assert [path.name for path in directory.certificates.iterdir()] == ["authority.pem"]


def test_a_job_without_tls_has_no_certificates(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / "plain")
    job_directory.create_job_directory(
        directory, JobSpec(name="plain", kind=JobKind.SCRIPT, script=ScriptSpec(path="train.py"))
    )
    manager = CertificateManager.open(directory)

    manager.issue("worker-0", NOW)

    assert manager.check_interval_s is None
    assert not directory.certificates.exists()
