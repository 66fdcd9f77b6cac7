"""Directories that appear whole, also where a volume is mounted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticdl.checkpoint import export_target, staging
from elasticdl.errors import CheckpointFailed, SpecError


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that cannot be renamed, in one that cannot be written."""
    directory = tmp_path / "model_output"
    directory.mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == directory)
    return directory


def fill(target: Path, *names: str) -> None:
    with staging.staged_directory(target) as directory:
        for name in names:
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text(name)


def test_a_mounted_directory_stays_and_holds_only_what_was_written(mounted: Path) -> None:
    number = mounted.stat().st_ino
    fill(mounted, "variables/old", "assets/a", "model.json")
    fill(mounted, "variables/new", "model.json")

    assert sorted(str(path.relative_to(mounted)) for path in mounted.rglob("*") if path.is_file()) == [
        "model.json",
        "variables/new",
    ]
    assert mounted.stat().st_ino == number
    assert [path.name for path in mounted.parent.iterdir()] == ["model_output"], "nothing beside it"


def test_what_failed_leaves_a_mounted_directory_as_it_was(mounted: Path) -> None:
    fill(mounted, "model.json")

    with pytest.raises(CheckpointFailed), staging.staged_directory(mounted) as directory:
        (directory / "no directory" / "half").touch()

    assert [path.name for path in mounted.iterdir()] == ["model.json"]


def test_an_output_where_a_volume_is_mounted_needs_no_writable_directory_above_it(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path == mounted)

    export_target.check_export_target(mounted)
    export_target.check_export_target(mounted.absolute())
    (mounted / f"{staging.STAGING_PREFIX}x").mkdir()
    (mounted / f"{staging.STAGING_PREFIX}x" / "half").touch()
    export_target.check_export_target(mounted)

    (mounted / "thesis.tex").touch()
    with pytest.raises(SpecError, match="holds other files"):
        export_target.check_export_target(mounted)
