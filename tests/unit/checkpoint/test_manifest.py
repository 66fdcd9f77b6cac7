"""Manifests that were changed, by accident or with a checksum made to match."""

from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from elasticdl.checkpoint import manifest
from elasticdl.checkpoint.manifest import FileEntry, Manifest
from elasticdl.errors import CheckpointCorrupt

GOOD = Manifest("checkpoint", 3, 30, {"model.safetensors": FileEntry(1, "ab")}, {}, {})


def _signed(document: dict[str, Any]) -> str:
    body = json.dumps(document, indent=1, sort_keys=True)
    return (
        json.dumps({**document, "checksum": hashlib.sha256(body.encode()).hexdigest()}, indent=1, sort_keys=True) + "\n"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"format": None}, {"files": []}, {"files": {"a": 1}}, {"files": {"a": {"bytes": "1", "sha256": ""}}},
        {"step": "3"}, {"records": None}, {"meta": 5}, {"extra": []}, {"kind": "cake"}, {"more": 1},
    ],
)  # fmt: skip
def test_a_manifest_of_another_shape_is_corrupt_though_its_checksum_is_right(
    change: dict[str, Any], tmp_path: Path
) -> None:
    document = json.loads(GOOD.render())
    del document["checksum"]
    (tmp_path / "manifest.json").write_text(_signed(document | change))

    with pytest.raises(CheckpointCorrupt):
        manifest.read_manifest(tmp_path / "manifest.json")


def test_a_changed_end_of_line_shows(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(GOOD.render())
    assert manifest.read_manifest(path) == GOOD

    path.write_bytes(GOOD.render().encode().replace(b"\n", b"\r\n"))

    with pytest.raises(CheckpointCorrupt, match="checksum"):
        manifest.read_manifest(path)


def test_an_error_of_the_disk_that_passes_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(GOOD.render())
    problems = [OSError(errno.EIO, "Input/output error"), OSError(errno.EMFILE, "Too many open files")]
    plain = Path.read_bytes

    def read_bytes(self: Path) -> bytes:
        if problems:
            raise problems.pop()
        return plain(self)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)

    assert manifest.read_manifest(path) == GOOD


def test_an_error_of_the_disk_that_lasts_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_bytes(self: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    monkeypatch.setattr(manifest, "RETRY_S", 0.0)

    with pytest.raises(CheckpointCorrupt, match="Input/output error"):
        manifest.read_manifest(tmp_path / "manifest.json")
