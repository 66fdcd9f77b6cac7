"""Signing requests: the authority uses the key of a valid one and ignores the rest, and refuses any other."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.errors import SpecError
from elasticdl.launcher.certificate_authority import MAX_REQUEST_BYTES, CertificateAuthority, SigningRequest, expires_at
from elasticdl.tls import Role

NOW = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
HOUR_S = 3600.0
AUTHORITY = CertificateAuthority.create("mnist", NOW)

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def certify(csr: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(AUTHORITY.sign_request(csr, Role.WORKER, "worker-3", NOW, HOUR_S).encode())


def request(key: Key, *extensions: x509.ExtensionType) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "master")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.DER)


def test_a_request_is_answered_with_a_certificate_of_its_key() -> None:
    signing = SigningRequest.create("worker-3")

    certificate = certify(signing.csr)

    key = serialization.load_pem_private_key(signing.key_pem.encode(), password=None)
    certificate.verify_directly_issued_by(AUTHORITY.certificate)
    assert certificate.public_key() == key.public_key()
    assert expires_at(certificate.public_bytes(serialization.Encoding.PEM)) == NOW.timestamp() + HOUR_S


def test_names_and_extensions_in_a_request_are_ignored() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("elasticdl://mnist/master/master")])

    certificate = certify(request(key, x509.BasicConstraints(ca=True, path_length=None), names))

    alternative_name = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert certificate.subject.rfc4514_string() == "CN=worker-3"
    assert alternative_name.get_values_for_type(x509.UniformResourceIdentifier) == ["elasticdl://mnist/worker/worker-3"]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def request_signed_by_another_key() -> bytes:
    """The key of one request under the signature of another."""
    first, second = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    public = [
        key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        for key in (first, second)
    ]
    return request(first).replace(public[0], public[1])


@pytest.mark.parametrize(
    ("csr", "message"),
    [
        (b"", "received 0 invalid bytes"),
        (b"no request at all", "received 17 invalid bytes"),
        (SigningRequest.create("worker-3").csr[:-1], "invalid bytes"),
        (bytes(MAX_REQUEST_BYTES + 1), "at most 4096 bytes; received 4097"),
        (request(rsa.generate_private_key(65537, 2048)), "another kind of key"),
        (request(ed25519.Ed25519PrivateKey.generate()), "another kind of key"),
        (request(ec.generate_private_key(ec.SECP384R1())), "another kind of key"),
        (request_signed_by_another_key(), "wrong signature"),
    ],
)
def test_a_bad_request_is_refused(csr: bytes, message: str) -> None:
    with pytest.raises(SpecError, match=f"csr: expected a certificate signing request .*{message}"):
        certify(csr)


@given(st.integers(0, 400), st.integers(1, 255))
def test_a_damaged_request_is_refused_or_its_key_is_unchanged(index: int, change: int) -> None:
    csr = bytearray(REQUEST.csr)
    csr[index % len(csr)] ^= change

    try:
        certificate = certify(bytes(csr))
    except SpecError:
        return
    assert certificate.public_key() == certify(REQUEST.csr).public_key()


REQUEST = SigningRequest.create("worker-3")
