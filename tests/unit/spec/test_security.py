from __future__ import annotations

from typing import Any

import pytest

from elasticdl.errors import SpecError
from elasticdl.spec import JobSpec, load

FILES = {"certificate": "c.pem", "key": "k.pem", "ca": "a.pem"}


def job(address: str = "127.0.0.1", **security: Any) -> JobSpec:
    script = {"name": "train", "kind": "script", "script": {"path": "train.py"}}
    return load.resolve_job(script | {"workers": {"address": address}, "security": security})


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_loopback_a_job_needs_no_tls(address: str) -> None:
    assert not job(address).security.is_on


@pytest.mark.parametrize("address", ["10.0.0.5", "fd00::5", "trainer.example.com"])
def test_an_open_address_without_tls_has_to_be_said_twice(address: str) -> None:
    with pytest.raises(SpecError, match=r"workers\.address \(--address\): .* add --tls, or --insecure"):
        job(address)

    assert job(address, insecure=True)
    assert job(address, tls=True)
    assert job(address, **FILES)


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_every_address_is_none_to_connect_to(address: str) -> None:
    with pytest.raises(SpecError, match="workers cannot connect to"):
        job(address, tls=True)


def test_what_contradicts_itself_is_refused() -> None:
    with pytest.raises(SpecError, match="set either tls, or certificate, key and ca"):
        job(tls=True, **FILES)
    with pytest.raises(SpecError, match="insecure means without TLS"):
        job(tls=True, insecure=True)
    with pytest.raises(SpecError, match="plain_nccl is an exception from TLS"):
        job(plain_nccl=True)
    assert job(tls=True, plain_nccl=True)
    with pytest.raises(SpecError, match="belong together"):
        job(certificate="c.pem")
