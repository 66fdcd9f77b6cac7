"""Secrets of one job: its token, certificates for gRPC, and keys for its ps. Made by whoever submits it.

The authority exists for this job alone, and its key is thrown away as soon as it has signed the one certificate that
master and workers share: nobody can ever join whom the job's Secret did not reach.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import secrets
from dataclasses import dataclass, field

from elasticdl.launcher.naming import cluster_of, master_name
from elasticdl.spec import JobSpec

LIFE = datetime.timedelta(days=365)
SKEW = datetime.timedelta(minutes=5)  # clocks of nodes may be behind the submitter's
TOKEN, AUTHORITY, CERTIFICATE, KEY, PS_KEYS = "token", "ca.pem", "certificate.pem", "key.pem", "ps-keys.json"


@dataclass(frozen=True, slots=True)
class JobSecrets:
    """What the Secret of a job holds. Nothing of it shows in logs. Empty certificates: the job has no TLS."""

    token: str = field(repr=False)
    ca_pem: str = field(default="", repr=False)
    certificate_pem: str = field(default="", repr=False)
    key_pem: str = field(default="", repr=False)
    ps_keys_json: str = field(default="", repr=False)

    def files(self) -> dict[str, str]:
        """By the names under which pods find them; those that are empty are left out."""
        named = {
            TOKEN: self.token,
            AUTHORITY: self.ca_pem,
            CERTIFICATE: self.certificate_pem,
            KEY: self.key_pem,
            PS_KEYS: self.ps_keys_json,
        }
        return {name: text for name, text in named.items() if text}


def make(spec: JobSpec, *, now: datetime.datetime | None = None) -> JobSecrets:
    """New secrets. `now` is when the certificate begins; by default it does at once."""
    token = secrets.token_urlsafe(32)
    if not cluster_of(spec).tls:
        return JobSecrets(token)
    # Both take a moment to import, and only who submits needs them.
    from elasticdl.ps.keys import Keys

    authority, certificate, key = _issue(spec, now or datetime.datetime.now(datetime.UTC))
    return JobSecrets(token, authority, certificate, key, json.dumps(Keys.make()._asdict()))


def _issue(spec: JobSpec, now: datetime.datetime) -> tuple[str, str, str]:
    """Authority, certificate and its key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def builder(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        begun = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named(spec.name))
        begun = begun.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return begun.not_valid_before(now - SKEW).not_valid_after(now + LIFE)

    def usage(*, signs_certificates: bool) -> x509.KeyUsage:
        return x509.KeyUsage(
            digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
            content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip

    authority_key = ec.generate_private_key(ec.SECP256R1())
    known = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        builder(spec.name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(signs_certificates=True), critical=True)
        .add_extension(known, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    addresses: list[x509.GeneralName] = [x509.DNSName(name) for name in names(spec)]
    addresses.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    certificate = (
        builder(master_name(spec), key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(signs_certificates=False), critical=True)
        # Of both sides: workers show it to the master as the master does to them.
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = serialization.Encoding.PEM
    return authority.public_bytes(pem).decode(), certificate.public_bytes(pem).decode(), private.decode()


def names(spec: JobSpec) -> list[str]:
    """By which the master is reached: its Service, and localhost through a port-forward."""
    service, namespace = master_name(spec), cluster_of(spec).namespace
    qualified = [f"{service}.{namespace}", f"{service}.{namespace}.svc"] if namespace else []
    return [service, *qualified, "localhost"]
