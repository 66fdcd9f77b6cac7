"""matplotlib keeps a cache of fonts; a home that cannot be written to must not cost a warning."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def settle() -> None:
    """Before matplotlib is imported."""
    if not os.access(Path.home(), os.W_OK):
        os.environ.setdefault("MPLCONFIGDIR", tempfile.mkdtemp(prefix="elasticdl-fonts-"))
