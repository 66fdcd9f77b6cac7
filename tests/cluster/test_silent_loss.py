"""A worker whose packets are dropped, in its own network namespace: `make test-cluster`, as root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RESCALE = Path(__file__).parents[2] / "benchmarks" / "rescale.py"


@pytest.mark.cluster
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_other_workers_continue_without_a_worker_whose_packets_are_dropped(tmp_path: Path) -> None:
    rows_file = tmp_path / "rows.json"
    argv = [sys.executable, str(RESCALE), "--quick", "--only", "silent", "--systems", "elasticdl"]

    subprocess.run([*argv, "--json", str(rows_file)], check=True, stdin=subprocess.DEVNULL)

    rows = json.loads(rows_file.read_text())
    assert rows, "no row: the scenario was left out"
    # A finite gap: they went on. How long it may be is the benchmark's business, no test is timed.
    assert all(isinstance(row["ours"], float) for row in rows)
