"""Names under which model files of the original ElasticDL import what they need: they run unchanged."""

from __future__ import annotations

import sys
from types import ModuleType

from elasticdl.data.mode import Mode
from elasticdl.keras.callbacks import LearningRateScheduler
from elasticdl.keras.embedding import Embedding

_MODULES: dict[str, dict[str, object]] = {
    "elasticdl.python.common.constants": {"Mode": Mode},
    "elasticdl.python.elasticdl.callbacks": {"LearningRateScheduler": LearningRateScheduler},
    "elasticdl.python.elasticdl.layers.embedding": {"Embedding": Embedding},
}


def install() -> None:
    """Let these modules, and the packages around them, be imported."""
    for name, content in _MODULES.items():
        parts = name.split(".")
        for depth in range(2, len(parts) + 1):
            here = ".".join(parts[:depth])
            if here not in sys.modules:
                module = ModuleType(here)
                module.__path__ = []
                sys.modules[here] = module
                setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], module)
        vars(sys.modules[name]).update(content)
