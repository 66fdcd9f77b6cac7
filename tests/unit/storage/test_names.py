"""Names that come from elsewhere lead nowhere else: by themselves, in manifests, in indexes and in messages."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from elasticdl.checkpoint import manifest
from elasticdl.checkpoint.manifest import FileEntry, Manifest
from elasticdl.errors import CheckpointCorrupt
from elasticdl.storage import scratch
from elasticdl.storage.names import UnsafeName, check_file_name, check_relative_path, safe_join
from elasticdl.storage.paths import StorePath

HOSTILE = (
    "", ".", "..", "/", "/etc/passwd", "../x", "a/../../x", "a/..", "./a", "a//b", "a/", "/a", "a\0b", "\0", "a\nb",
    "..\\x", "a\\..\\x", "C:x", "C:/x", "c:\\x", "\x7f", "~root/\x01", "a" * 256, "é" * 128, "\ud800", "//host/x",
)  # fmt: skip
USUAL = ("model.safetensors", "ps/index.json", "ps/ps-0-12.safetensors", "files/café.json", "a b", "...", "~", "-x")

# Pieces that paths are made of, so that random ones are near the edge.
pieces = st.sampled_from(["..", ".", "", "a", "b", "~", "C:", "\\", "\0", "..a", " ", "\ud800", "\u2215", "x" * 300])
paths = st.lists(pieces | st.text(max_size=4), min_size=1, max_size=6).map("/".join)


@pytest.mark.parametrize("path", HOSTILE)
def test_a_name_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(UnsafeName):
        check_relative_path(path)
    with pytest.raises(UnsafeName):
        check_file_name(path)


@pytest.mark.parametrize("path", USUAL)
def test_usual_names_are_taken(path: str) -> None:
    assert check_relative_path(path) == path


@given(paths)
def test_what_is_taken_stays_below_its_directory_on_every_system(path: str) -> None:
    from pathlib import PurePosixPath, PureWindowsPath

    try:
        check_relative_path(path)
    except UnsafeName:
        return
    for kind in (PurePosixPath, PureWindowsPath):
        joined = kind("here/below") / path
        assert joined.parts[:2] == ("here", "below") and ".." not in joined.parts
    path.encode()
    assert "\0" not in path


def test_a_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    (directory / "out").symlink_to("../secret")
    (directory / "above").symlink_to("..")
    (directory / "real").write_text("y")
    (directory / "in").symlink_to("real")

    for path in ("out", "above/secret"):
        with pytest.raises(UnsafeName, match="leads out"):
            safe_join(directory, path)
    assert safe_join(directory, "in").read_text() == "y"


def signed(files: dict[str, Any]) -> str:
    """A manifest as somebody who knows how would write it."""
    document = json.loads(Manifest("checkpoint", 3, 30, {}, {}, {}).render())
    del document["checksum"]
    document["files"] = files
    body = json.dumps(document, indent=1, sort_keys=True)
    document["checksum"] = hashlib.sha256(body.encode()).hexdigest()
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


@given(path=paths | st.sampled_from(HOSTILE))
def test_no_manifest_names_a_file_elsewhere(path: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "manifest.json"
    file.write_text(signed({path: {"bytes": 1, "sha256": "ab"}}))
    try:
        document = manifest.read_manifest(file)
    except CheckpointCorrupt:
        return
    assert list(document.files) == [check_relative_path(path)]


def test_a_file_of_a_checkpoint_that_is_a_link_elsewhere_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    (directory / "model.safetensors").symlink_to(tmp_path / "secret")
    entry = FileEntry(1, hashlib.sha256(b"x").hexdigest())

    with pytest.raises(CheckpointCorrupt, match="leads out"):
        manifest.verify_files(directory, Manifest("checkpoint", 3, 30, {"model.safetensors": entry}, {}, {}))


def test_nothing_is_downloaded_to_elsewhere() -> None:
    with pytest.raises(UnsafeName):
        scratch.download_files(StorePath("s3", "bucket/checkpoint"), ["../../planted"], "1")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_index_of_rows_and_no_message_to_a_ps_names_a_file_elsewhere(name: str) -> None:
    native = pytest.importorskip("elasticdl.ps._native")
    assert native
    from elasticdl.ps.snapshots.chain import SnapshotFile
    from elasticdl.ps.snapshots.exported_tables import ExportedTable
    from elasticdl.ps.snapshots.writer import WriteRequest

    fields = {"ps": "ps-0", "number": 1, "step": 1, "owned": "00" * 128, "whole": "00" * 128, "rows": 0, "applied": 0}
    for model, document in (
        (SnapshotFile, {"name": name, **fields}),
        (WriteRequest, {"cut": "a", "directory": "/tmp", "name": name}),
        (ExportedTable, {"spec": {"name": "t", "columns": 2}, "seed": 0, "rows": 0, "shards": [name]}),
    ):
        with pytest.raises(ValidationError) as raised:
            model.model_validate(document)
        assert "file" in str(raised.value) or "Input should be a valid string" in str(raised.value)
