"""The catalog of the zoo in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def test_listing_needs_no_framework() -> None:
    code = (
        "import sys; from elasticdl.zoo import catalog\n"
        "described = [(model.params, model.commands) for model in catalog.MODELS]\n"
        "sys.exit(bool({'torch', 'tensorflow'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
