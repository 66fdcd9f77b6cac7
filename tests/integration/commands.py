"""The command line as a user types it, in a directory with its own home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def elasticdl(directory: Path, *words: str) -> str:
    """Runs the command and returns its output; a command that fails fails the test."""
    environ = os.environ | {"ELASTICDL_HOME": str(directory / "home"), "COLUMNS": "150"}
    done = subprocess.run(
        [sys.executable, "-m", "elasticdl.cli", *words],
        cwd=directory, env=environ, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
