"""Files whose writer dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from elasticdl import atomic

DIES = """
import os, sys
from pathlib import Path
from elasticdl import atomic

with atomic.open_file(Path(sys.argv[1]), sync=True) as file:
    file.write(b"half of what is n")
    file.flush()
    os._exit(9)
"""


def test_a_writer_that_dies_before_the_end_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "statistics.json"
    path.write_text("old")

    ended = subprocess.run([sys.executable, "-c", DIES, str(path)], check=False, timeout=60)

    assert ended.returncode == 9
    assert path.read_text() == "old"
    assert [left.read_bytes() for left in tmp_path.iterdir() if left != path] == [b"half of what is n"]
    atomic.write_file(path, "new")
    assert path.read_text() == "new"
