"""Databases of DuckDB that another process has open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from elasticdl.errors import DataUnavailable
from tests.duckdb_shop import path, source_of

__all__ = ["path"]

duckdb = pytest.importorskip("duckdb")


def test_a_file_that_another_process_writes_is_waited_for(path: Path) -> None:
    writer = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); input(); c.close()"
    with subprocess.Popen([sys.executable, "-c", writer, str(path)], stdin=PIPE, stdout=PIPE, text=True) as writing:
        assert writing.stdout is not None and writing.stdin is not None
        assert writing.stdout.readline() == "open\n"
        with pytest.raises(DataUnavailable, match=r"did not answer for 0.2 s: .*open for writing elsewhere"):
            source_of(path, "clicks", retry_s=0.2)
        writing.stdin.write("\n")
        writing.stdin.flush()
        source_of(path, "clicks", retry_s=30).close()
