"""TensorBoard's files without TensorFlow: where that is installed too, tensorboard would import it, for seconds."""

from __future__ import annotations

import sys
from types import ModuleType


def keep_tensorflow_out() -> None:
    """Call before anything of tensorboard is imported: it then uses its own small stand-in."""
    sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))
