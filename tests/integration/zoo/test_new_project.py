"""A new model zoo in a process without a framework."""

from __future__ import annotations

import subprocess
import sys


def test_making_a_zoo_needs_no_framework() -> None:
    code = "import sys, elasticdl.zoo.new_project\nsys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
