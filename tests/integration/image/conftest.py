"""Engines that are scripts: they write down what they were told, and do as the test says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

MakeEngine = Callable[..., Path]


@pytest.fixture
def engine_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeEngine:
    """Put an engine on the PATH, which holds no other. Gives the file its command lines are written to."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "sleep", "cat"):
        (programs / name).symlink_to(
            next(Path(place) / name for place in os.defpath.split(":") if place and (Path(place) / name).exists())
        )
    monkeypatch.setenv("PATH", str(programs))

    def make(name: str, body: str = "") -> Path:
        told = tmp_path / f"{name}.told"
        script = programs / name
        script.write_text(f'#!/bin/sh\necho "$@" >> {told}\n{body}\n')
        script.chmod(0o755)
        return told

    return make
