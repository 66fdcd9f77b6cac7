"""A model file for tests of whole jobs: `tiny.py`, which in one step fills the memory of the cgroup it is put into."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import tiny
import torch
from tiny import custom_data_reader as custom_data_reader
from tiny import dataset_fn as dataset_fn
from tiny import loss as loss
from torch import Tensor, nn

_HOARD_BYTES = 1 << 29


class Hoarder(nn.Module):
    """In the forward pass number `at` of a process it allocates more memory than `cgroup` has."""

    def __init__(self, cgroup: str, at: int) -> None:
        super().__init__()
        self.net = tiny.forward()
        self._cgroup, self._left = cgroup, at

    def forward(self, features: Tensor) -> Tensor:
        self._left -= 1
        if self._left == 0:
            (Path(self._cgroup) / "cgroup.procs").write_text(str(os.getpid()))
            torch.ones(_HOARD_BYTES, dtype=torch.uint8)
        predictions: Tensor = self.net(features)
        return predictions


def forward(slow: str = "", pause_s: float = 0.02, cgroup: str = "", at: int = 1) -> nn.Module:
    return Hoarder(cgroup, at)


def optimizer(parameters: Iterable[Tensor], lr: float = 0.01) -> torch.optim.Optimizer:
    return tiny.optimizer(parameters, lr)
