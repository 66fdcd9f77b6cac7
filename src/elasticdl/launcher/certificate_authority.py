"""The certificate authority of one job: it issues a short-lived certificate to each replica."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from elasticdl.errors import SpecError
from elasticdl.tls import CLOCK_SKEW_S, PeerIdentity, Role

AUTHORITY_LIFETIME = datetime.timedelta(days=3650)  # longer than any job
MAX_REQUEST_BYTES = 4096  # ours have 300

_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """Its key can impersonate any replica of this job, and none of another job."""

    job: str
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, job: str, now: datetime.datetime) -> CertificateAuthority:
        key = ec.generate_private_key(ec.SECP256R1())
        key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            # Valid before now, too: the clock may be set back while the job runs.
            _certificate_builder(job, job, key.public_key(), now - AUTHORITY_LIFETIME, 2 * AUTHORITY_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(key_id, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(job, certificate, key)

    @classmethod
    def from_pem(cls, certificate_pem: str, key_pem: str) -> CertificateAuthority:
        """The authority with this certificate and key. Raises ValueError if they are invalid."""
        certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
        key = serialization.load_pem_private_key(key_pem.encode(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ValueError("expected the key of this authority")
        name = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        return cls(str(name), certificate, key)

    @property
    def pem(self) -> str:
        """Its certificate, with which every replica verifies the others."""
        return self.certificate.public_bytes(_PEM).decode()

    @property
    def key_pem(self) -> str:
        return _key_pem(self.key)

    def issue(self, role: Role, name: str, now: datetime.datetime, life_s: float) -> str:
        """A new key and its certificate in one text, so that one file holds both and is replaced atomically."""
        key = ec.generate_private_key(ec.SECP256R1())
        return _key_pem(key) + self._sign(key.public_key(), PeerIdentity(self.job, role, name), now, life_s)

    def sign_request(self, csr: bytes, role: Role, name: str, now: datetime.datetime, life_s: float) -> str:
        """A certificate for the key of a signing request in DER; the rest of the request is ignored.

        Raises SpecError for an invalid request.
        """
        return self._sign(_requested_key(csr), PeerIdentity(self.job, role, name), now, life_s)

    def _sign(self, key: ec.EllipticCurvePublicKey, peer: PeerIdentity, now: datetime.datetime, life_s: float) -> str:
        issuer_key_id = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(peer.uri), x509.DNSName(peer.host)]
        certificate = (
            _certificate_builder(peer.name, self.job, key, now, datetime.timedelta(seconds=life_s))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            # Both sides of a connection present one.
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key_id), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(_PEM).decode()


class SigningRequest(NamedTuple):
    """A new key, which stays where it was created, and the signing request for it."""

    key_pem: str
    csr: bytes

    @classmethod
    def create(cls, name: str) -> SigningRequest:
        key = ec.generate_private_key(ec.SECP256R1())
        request = x509.CertificateSigningRequestBuilder().subject_name(_common_name(name)).sign(key, hashes.SHA256())
        return cls(_key_pem(key), request.public_bytes(serialization.Encoding.DER))


def expires_at(pem: bytes) -> float:
    """When the first certificate of a PEM file expires. Raises ValueError if there is none."""
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()


def _requested_key(csr: bytes) -> ec.EllipticCurvePublicKey:
    expected = "csr: expected a certificate signing request in DER for a key on the curve P-256"
    if len(csr) > MAX_REQUEST_BYTES:
        raise SpecError(f"{expected}, of at most {MAX_REQUEST_BYTES} bytes; received {len(csr)} bytes")
    try:
        request = x509.load_der_x509_csr(csr)
        key, is_signed = request.public_key(), request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as exc:
        raise SpecError(f"{expected}; received {len(csr)} invalid bytes ({exc})") from exc
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise SpecError(f"{expected}; received another kind of key")
    if not is_signed:
        raise SpecError(f"{expected}, signed with that key; received a wrong signature")
    return key


def _certificate_builder(
    subject: str, issuer: str, key: ec.EllipticCurvePublicKey, now: datetime.datetime, life: datetime.timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(subject))
        .issuer_name(_common_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(seconds=CLOCK_SKEW_S))
        .not_valid_after(now + life)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    encoded = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return encoded.decode()
