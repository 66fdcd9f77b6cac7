"""Lets tensorboard read and write its files without TensorFlow, which takes seconds to load."""

from __future__ import annotations

import sys
from types import ModuleType

_STUB = "tensorboard.compat.notf"


def avoid_tensorflow() -> None:
    """Let tensorboard use its own stand-in also where TensorFlow is installed. It looks for a module of this name."""
    sys.modules.setdefault(_STUB, ModuleType(_STUB))
