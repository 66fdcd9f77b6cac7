"""The script that locks the versions of the image."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_lock_file_has_the_packages_that_elasticdl_requires_each_with_a_hash() -> None:
    done = subprocess.run([sys.executable, ROOT / "deploy" / "lock.py", "--check"], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
