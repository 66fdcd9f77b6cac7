"""Which addresses are places."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import SpecError
from elasticdl.spec import JobSpec
from elasticdl.spec.load import resolve_job
from elasticdl.storage import schemes
from elasticdl.storage.paths import StorePath, parse_path


@pytest.mark.parametrize("address", ["s3://bucket", "s3://bucket/a/b", "gs://bucket/a", "az://container/a", "S3://b/c"])
def test_an_address_of_a_store_is_a_place_in_it(address: str) -> None:
    store_path = parse_path(address)

    assert isinstance(store_path, StorePath)
    assert str(store_path / "c") == f"{address[:2].lower()}{address[2:]}/c"


@pytest.mark.parametrize(
    ("address", "path"), [("/x/y", "/x/y"), ("x", "x"), ("file:///x/y", "/x/y"), ("file:///a%20b", "/a b")]
)
def test_a_path_and_a_file_url_are_places_of_this_machine(address: str, path: str) -> None:
    assert parse_path(address) == Path(path)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("foo://bucket/x", "s3://, gs://, az://, file://"),
        ("memory://x", "memory:// is not known"),
        ("s3://", "expected a bucket"),
        ("s3:///x", "expected a bucket"),
        ("file://x/y", "file:///x/y"),
        ("s3://key:secret@bucket/x", "holds a password"),
        ("s3://bucket/x?versionId=1", r"without \? and #"),
    ],
)
def test_what_is_no_place_is_refused_with_the_fix(address: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        parse_path(address)


@pytest.mark.parametrize("path", ["output", "checkpoint.directory", "checkpoint.init_from"])
def test_a_job_with_an_unknown_scheme_is_refused_with_those_that_are_known(path: str) -> None:
    section, _, leaf = path.rpartition(".")
    fields = {section: {leaf: "foo://x"}} if section else {leaf: "foo://x"}

    with pytest.raises(SpecError, match=rf"{path}.*s3://, gs://, az://, file://"):
        resolve_job({"name": "job", "model": {"definition": "m.f"}, **fields})


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(SpecError) as refused:
        resolve_job({"name": "job", "model": {"definition": "m.f"}, "output": "s3://key:geheim@bucket/x"})

    assert "output: the address holds a password" in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_a_file_url_in_a_job_becomes_a_path() -> None:
    job = resolve_job({"name": "job", "model": {"definition": "m.f"}, "output": "file:///a/b"})

    assert isinstance(job, JobSpec) and job.output == "/a/b"


@pytest.mark.parametrize(("scheme", "package"), [("gs", "gcsfs"), ("az", "adlfs")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    scheme: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemes, "find_spec", lambda name: None)

    with pytest.raises(SpecError, match=rf"needs the package {package}, .*: pip install "):
        schemes.open_filesystem(scheme)
