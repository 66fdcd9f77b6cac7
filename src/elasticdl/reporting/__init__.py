"""Figures, HTML reports and TensorBoard files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def use_writable_font_cache() -> None:
    """Lets matplotlib cache fonts where the home directory is not writable. Call it before matplotlib is imported."""
    if not os.access(Path.home(), os.W_OK):
        os.environ.setdefault("MPLCONFIGDIR", tempfile.mkdtemp(prefix="elasticdl-fonts-"))
