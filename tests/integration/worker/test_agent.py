"""The imports of the agent in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def test_the_agent_needs_no_framework() -> None:
    code = "import sys, elasticdl.worker.__main__, elasticdl.worker.agent\nsys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
