"""Benchmarks that need only this machine run in their quick form and write their rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import native

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("dispatch.py",),
        ("noise.py",),
        ("start.py",),
        ("slow_dataset.py",),
        ("your_code.py", "--only", "guard"),
        ("your_code.py", "--only", "lines"),
        ("ps_memory.py", "--no-peer"),
        ("ps_rows.py", "--no-peer"),
        ("features.py", "--no-peer"),
    ],
)
def test_a_benchmark_writes_its_rows(command: tuple[str, ...], tmp_path: Path) -> None:
    name, *options = command
    if name.startswith("ps_"):
        native.require()
    file = tmp_path / "rows.json"
    argv = [sys.executable, str(BENCHMARKS / name), "--quick", "--json", str(file), *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(file.read_text())
    assert rows
    for row in rows:
        assert set(row) == {"measure", "unit", "ours", "peer", "peer_name", "goal", "met"}
        assert row["ours"] is not None
