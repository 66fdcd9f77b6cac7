"""The catalog of models in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def test_the_list_of_models_needs_no_torch() -> None:
    program = "import sys; from elasticdl.ctr.models.catalog import MODELS_BY_NAME; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
