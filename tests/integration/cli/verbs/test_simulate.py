"""Ctrl-C in `elasticdl simulate`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.waiting import until


def test_ctrl_c_writes_partial_results(tmp_path: Path) -> None:
    words = ["simulate", "--policy", "fifo-gang,goodput", "--trace", "synthetic:jobs=3000,per_hour=60"]
    files = ["--json", str(tmp_path / "r.json"), "--processes", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "elasticdl.cli", *words, *files],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children = psutil.Process(process.pid).children
    until("two simulations run, and who watches over their memory", lambda: len(children()) >= 3)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "stopped after" in output
    assert any(not policy["is_complete"] for policy in json.loads((tmp_path / "r.json").read_text())["policies"])
