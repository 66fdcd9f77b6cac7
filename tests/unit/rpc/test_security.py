from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import SpecError
from elasticdl.rpc import security
from elasticdl.tls import TlsCredentials


def test_a_call_with_the_token_of_the_job_is_authorized() -> None:
    assert security.is_authorized(security.call_metadata("secret"), "secret")


@pytest.mark.parametrize("metadata", [(), (("authorization", "Bearer other"),), (("authorization", "secret"),)])
def test_a_call_with_anything_else_is_not_authorized(metadata: tuple[tuple[str, str], ...]) -> None:
    assert not security.is_authorized(metadata, "secret")


def test_the_metadata_of_a_call_names_the_run() -> None:
    assert security.is_same_run(security.call_metadata("secret", 3), 3)
    assert not security.is_same_run(security.call_metadata("secret", 3), 2)
    assert not security.is_same_run(security.call_metadata("secret"), 3)


def test_a_job_without_certificates_has_no_tls() -> None:
    assert security.channel_credentials(None) is None
    assert security.server_credentials(None) is None


def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.pem"

    with pytest.raises(SpecError, match=r"security\.authority: expected a readable PEM file, received .*none\.pem"):
        security.channel_credentials(TlsCredentials(missing, missing, missing))
