"""A model file that needs more memory than it requests: `megabytes` more than every worker needs."""

from __future__ import annotations

import tiny
from tiny import custom_data_reader, dataset_fn, loss, optimizer  # noqa: F401
from torch import nn

_eaten: list[bytearray] = []


def forward(slow: str = "", pause_s: float = 0.0, megabytes: int = 0) -> nn.Module:
    # Written to, page by page: memory that is only reserved is none.
    _eaten.append(bytearray(b"\x01") * (megabytes << 20))
    return tiny.forward(slow, pause_s)
