"""The directory of a process for files on their way to or from a store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elasticdl.errors import SpecError
from elasticdl.storage import scratch

ASK = (
    "import os, signal; from elasticdl.storage.scratch import scratch_directory; print(scratch_directory(), flush=True)"
)


def run(program: str, temporary: Path) -> Path:
    environ = os.environ | {"TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    return Path(done.stdout.strip())


def test_a_scratch_directory_is_deleted_with_its_process(tmp_path: Path) -> None:
    path = run(ASK, tmp_path)

    assert path.is_relative_to(tmp_path) and not path.exists()


def test_the_scratch_directory_of_a_killed_process_is_deleted_by_the_next(tmp_path: Path) -> None:
    left = run(f"{ASK}; os.kill(os.getpid(), signal.SIGKILL)", tmp_path)
    assert left.is_dir()

    run(ASK, tmp_path)

    assert not left.exists()


def test_a_scratch_directory_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shared = tmp_path / f"elasticdl-{os.getuid()}"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)

    with pytest.raises(SpecError, match="only you can access"):
        scratch.scratch_directory()
