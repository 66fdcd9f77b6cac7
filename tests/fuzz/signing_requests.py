"""Signing requests of replicas: the key is certified under the name that the master chooses, or SpecError."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from cryptography import x509

from elasticdl.errors import SpecError
from elasticdl.launcher.certificate_authority import CertificateAuthority, SigningRequest
from elasticdl.tls import Role

MEMORY_BYTES = 1 << 20
NOW = datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)
AUTHORITY = CertificateAuthority.create("job", NOW)


def fuzz_one(data: bytes) -> None:
    try:
        pem = AUTHORITY.sign_request(data, Role.WORKER, "worker-3", NOW, 60.0)
    except SpecError:
        return
    assert x509.load_pem_x509_certificate(pem.encode()).subject.rfc4514_string() == "CN=worker-3"


def seeds() -> Iterator[bytes]:
    yield SigningRequest.create("worker-3").csr
    yield SigningRequest.create("x" * 64).csr
