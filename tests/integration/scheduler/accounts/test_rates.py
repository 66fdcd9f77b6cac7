"""Imports of a scheduler in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def test_warming_up_imports_the_packages_for_fitting() -> None:
    program = (
        "import sys; from elasticdl.scheduler.accounts import rates; before = 'scipy.optimize' in sys.modules; "
        "rates.warm_up_fitting(); print(before, 'scipy.optimize' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split() == ["False", "True"]
