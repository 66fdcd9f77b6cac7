"""Keys in files."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from elasticdl.errors import SpecError, is_job_error
from elasticdl.ps.wire.keys import CurveKeys


def test_keys_come_back_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    keys, path = CurveKeys.generate(), tmp_path / "keys.json"

    keys.write(path)

    assert CurveKeys.read(path) == keys
    assert path.stat().st_mode & 0o777 == 0o600


def test_keys_that_others_may_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    CurveKeys.generate().write(path)
    path.chmod(0o640)

    with pytest.raises(SpecError, match=r"expected mode 0600\. Received: others may read it \(040\)"):
        CurveKeys.read(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"server_public": 3}', '{"server_public": "short"}'])
def test_a_file_that_holds_no_keys_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    path.chmod(0o600)

    with pytest.raises(SpecError, match="expected four keys of CURVE"):
        CurveKeys.read(path)


def test_missing_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"ps-keys\.json: expected the keys of the job's ps: No such file"):
        CurveKeys.read(tmp_path / "ps-keys.json")


def test_keys_that_cannot_be_read_for_want_of_descriptors_make_no_wrong_job(tmp_path: Path) -> None:
    path, limits = tmp_path / "keys.json", resource.getrlimit(resource.RLIMIT_NOFILE)
    CurveKeys.generate().write(path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(SpecError) as caught:
            CurveKeys.read(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert not is_job_error(caught.value)


def test_secrets_do_not_show() -> None:
    keys = CurveKeys.generate()

    assert keys.server_secret not in f"{keys} {keys!r}" and keys.client_secret not in f"{keys} {keys!r}"
