"""A model file for tests of whole jobs: `counting.py`, which fails when a test asks for it (trouble.py)."""

from __future__ import annotations

import counting
from counting import custom_data_reader as custom_data_reader
from counting import dataset_fn as dataset_fn
from counting import loss as loss
from counting import optimizer as optimizer
from torch import nn
from trouble import with_trouble


def forward(slow: str = "", pause_s: float = 0.02, trouble: str = "") -> nn.Module:
    return with_trouble(counting.forward(slow, pause_s), trouble)
