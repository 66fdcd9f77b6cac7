"""The check of a model in a process without a framework."""

from __future__ import annotations

import subprocess
import sys


def test_checking_needs_no_framework() -> None:
    code = "import sys, elasticdl.model.check, elasticdl.model.reduction, elasticdl.checkpoint.manifest\n" + (
        "sys.exit('torch' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
