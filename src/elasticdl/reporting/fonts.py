"""Gives matplotlib a writable font cache. Call it before matplotlib is imported."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def use_writable_font_cache() -> None:
    """Before matplotlib is imported."""
    if not os.access(Path.home(), os.W_OK):
        os.environ.setdefault("MPLCONFIGDIR", tempfile.mkdtemp(prefix="elasticdl-fonts-"))
