"""Torch modules of transforms in a process of their own."""

from __future__ import annotations

import subprocess
import sys


def test_the_modules_load_no_tensorflow() -> None:
    script = "import sys, elasticdl.features.torch; print({'tensorflow', 'keras'} & set(sys.modules))"

    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout == "set()\n"
    )
