"""Container engines that are scripts: they log their arguments and do what the test specifies."""

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
            next(
                Path(directory) / name
                for directory in os.defpath.split(":")
                if directory and (Path(directory) / name).exists()
            )
        )
    monkeypatch.setenv("PATH", str(programs))

    def make(name: str, body: str = "") -> Path:
        calls = tmp_path / f"{name}.calls"
        script = programs / name
        script.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n{body}\n')
        script.chmod(0o755)
        return calls

    return make
