"""Secrets of one job on a cluster: its token, its authority, and keys for its ps. Made by who submits it.

The authority exists for this job alone. Its master has the key, and issues a short-lived certificate to each replica.
Workers and ps ask for theirs with the certificate of their role, which is good for nothing else: `enrolment`. A pod has
the files of its own role only.
"""

from __future__ import annotations

import datetime
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.launcher.certificate_manager import AUTHORITY_KEY
from elasticdl.launcher.kubernetes.naming import MASTER, PS, WORKER, cluster_spec
from elasticdl.spec import JobSpec
from elasticdl.tls import Role

LONG_LIVED_ROLES = (Role.WORKER, Role.PS, Role.CLIENT)  # roles with a certificate for as long as the job may last
TOKEN_FILE, AUTHORITY_FILE, PS_KEYS_FILE = "token", "authority.pem", "ps-keys.json"


def certificate_file(role: str) -> str:
    """Of the key and certificate of a role, in one file: a client's, or for the enrolment of a worker or a ps."""
    return f"{role}.pem"


@dataclass(frozen=True, slots=True)
class JobSecrets:
    """What the Secret of a job holds. Nothing of it shows in logs. No certificates: the job has no TLS."""

    token: str = field(repr=False)
    authority_pem: str = field(default="", repr=False)
    authority_key_pem: str = field(default="", repr=False)
    certificates: Mapping[Role, str] = field(default_factory=dict, repr=False)
    ps_keys_json: str = field(default="", repr=False)

    @classmethod
    def placeholder(cls, text: str, *, tls: bool) -> JobSecrets:
        """The same files with `text` in each, to be shown."""
        return cls(text, text, text, dict.fromkeys(LONG_LIVED_ROLES, text), text) if tls else cls(text)

    def to_files(self) -> dict[str, str]:
        """By the names under which pods find them; those that are empty are left out."""
        named = {TOKEN_FILE: self.token, AUTHORITY_FILE: self.authority_pem, AUTHORITY_KEY: self.authority_key_pem}
        named[PS_KEYS_FILE] = self.ps_keys_json
        named |= {certificate_file(role): pem for role, pem in self.certificates.items()}
        return {name: text for name, text in named.items() if text}


def secret_files(spec: JobSpec, role: str) -> list[str]:
    """The files of the Secret that pods of a role have."""
    if not cluster_spec(spec).tls:
        return [TOKEN_FILE]
    return [TOKEN_FILE, *certificate_files(role), *([PS_KEYS_FILE] if role in (WORKER, PS) else [])]


def certificate_files(role: str) -> list[str]:
    """Of these: what certificates are got with."""
    return [AUTHORITY_FILE, AUTHORITY_KEY if role == MASTER else certificate_file(role)]


def create_secrets(spec: JobSpec, *, now: datetime.datetime | None = None) -> JobSecrets:
    """New secrets. `now` is when the certificates begin; by default they do at once."""
    token = secrets.token_urlsafe(32)
    if not cluster_spec(spec).tls:
        return JobSecrets(token)
    # Both take a moment to import, and only who submits needs them.
    from elasticdl.launcher.certificate_authority import AUTHORITY_LIFETIME, CertificateAuthority
    from elasticdl.ps.wire.keys import CurveKeys

    begin = now or datetime.datetime.now(datetime.UTC)
    authority = CertificateAuthority.create(spec.name, begin)
    issued = {role: authority.issue(role, role, begin, AUTHORITY_LIFETIME.total_seconds()) for role in LONG_LIVED_ROLES}
    return JobSecrets(token, authority.pem, authority.key_pem, issued, json.dumps(CurveKeys.generate()._asdict()))
