"""Figures, HTML reports and TensorBoard files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from elasticdl.extras import check_module


def prepare_figures(purpose: str, extra: str = "figures") -> None:
    """Must be called before matplotlib is imported. Raises SpecError, with the fix, if it is not installed.

    If the home directory is not writable, matplotlib caches its fonts elsewhere.
    """
    check_module(purpose, "matplotlib", extra)
    if not os.access(Path.home(), os.W_OK):
        os.environ.setdefault("MPLCONFIGDIR", tempfile.mkdtemp(prefix="elasticdl-fonts-"))
