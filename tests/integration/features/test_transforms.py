"""The import of transforms in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def test_importing_features_loads_no_framework() -> None:
    script = "import sys, elasticdl.features; print({'torch', 'tensorflow', 'keras', 'pyarrow'} & set(sys.modules))"

    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout == "set()\n"
    )
