"""A model file for tests of whole jobs: `tiny.py`, which fails when a test asks for it (trouble.py)."""

from __future__ import annotations

import tiny
from tiny import callbacks as callbacks
from tiny import custom_data_reader as custom_data_reader
from tiny import dataset_fn as dataset_fn
from tiny import eval_metrics_fn as eval_metrics_fn
from tiny import loss as loss
from tiny import optimizer as optimizer
from torch import nn
from trouble import with_trouble


def forward(slow: str = "", pause_s: float = 0.02, trouble: str = "") -> nn.Module:
    return with_trouble(tiny.forward(slow, pause_s), trouble)
