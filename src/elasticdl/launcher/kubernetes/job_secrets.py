"""The secrets of one job on a cluster: its token, its certificate authority, and the keys of its ps.

They are created when the job is submitted. The authority exists for this job alone. Its master has the key, and issues
a short-lived certificate to each replica. Workers and ps request theirs with the certificate of their role, which is
good for nothing else (enrolment). A pod has the files of its own role only.
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
    """The name of the file with the key and the certificate of a role: the client, or workers or ps that enrol."""
    return f"{role}.pem"


@dataclass(frozen=True, slots=True)
class JobSecrets:
    """The contents of the Secret of a job, kept out of logs. Without certificates, the job has no TLS."""

    token: str = field(repr=False)
    authority_pem: str = field(default="", repr=False)
    authority_key_pem: str = field(default="", repr=False)
    certificates: Mapping[Role, str] = field(default_factory=dict, repr=False)
    ps_keys_json: str = field(default="", repr=False)

    @classmethod
    def placeholder(cls, text: str, *, tls: bool) -> JobSecrets:
        """Secrets with `text` in place of each value, for display."""
        return cls(text, text, text, dict.fromkeys(LONG_LIVED_ROLES, text), text) if tls else cls(text)

    def to_files(self) -> dict[str, str]:
        """The text of each file, by its name in the pods; empty ones are left out."""
        files = {TOKEN_FILE: self.token, AUTHORITY_FILE: self.authority_pem, AUTHORITY_KEY: self.authority_key_pem}
        files[PS_KEYS_FILE] = self.ps_keys_json
        files |= {certificate_file(role): pem for role, pem in self.certificates.items()}
        return {name: text for name, text in files.items() if text}


def secret_files(spec: JobSpec, role: str) -> list[str]:
    """The files of the Secret that pods of this role have."""
    if not cluster_spec(spec).tls:
        return [TOKEN_FILE]
    return [TOKEN_FILE, *certificate_files(role), *([PS_KEYS_FILE] if role in (WORKER, PS) else [])]


def certificate_files(role: str) -> list[str]:
    """The files with which pods of this role obtain their certificates."""
    return [AUTHORITY_FILE, AUTHORITY_KEY if role == MASTER else certificate_file(role)]


def create_secrets(spec: JobSpec, *, now: datetime.datetime | None = None) -> JobSecrets:
    """New secrets, with certificates valid from `now` (by default the current time)."""
    token = secrets.token_urlsafe(32)
    if not cluster_spec(spec).tls:
        return JobSecrets(token)
    # Slow to import, and only needed to submit a job.
    from elasticdl.launcher.certificate_authority import AUTHORITY_LIFETIME, CertificateAuthority
    from elasticdl.ps.wire.keys import CurveKeys

    begin = now or datetime.datetime.now(datetime.UTC)
    authority = CertificateAuthority.create(spec.name, begin)
    issued = {role: authority.issue(role, role, begin, AUTHORITY_LIFETIME.total_seconds()) for role in LONG_LIVED_ROLES}
    return JobSecrets(token, authority.pem, authority.key_pem, issued, json.dumps(CurveKeys.generate()._asdict()))
