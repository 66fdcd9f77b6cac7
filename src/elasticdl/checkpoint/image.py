"""The image of a training state: tensors by name and a little JSON.

Checkpoints write it, newcomers receive it, evaluation reads the weights from it.
An image is a copy: training goes on while it is written or sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

MODEL = "model/"
OPTIMIZER = "optimizer/"


@dataclass(frozen=True, slots=True)
class Image:
    """The state after `step` steps, which trained `records` records."""

    step: int
    records: int
    tensors: dict[str, torch.Tensor]
    meta: dict[str, Any]  # JSON values only

    def weights(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers under the names the model knows."""
        return {name.removeprefix(MODEL): t for name, t in self.tensors.items() if name.startswith(MODEL)}

    @property
    def size_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())


def capture(model: nn.Module, optimizer: torch.optim.Optimizer | None, step: int, records: int) -> Image:
    """Copy the state to host memory. The only part of a checkpoint that training waits for."""
    tensors = {MODEL + name: _copy(tensor) for name, tensor in model.state_dict().items()}
    meta: dict[str, Any] = {}
    if optimizer is not None:
        optimizer_state = optimizer.state_dict()
        scalars: dict[str, Any] = {}
        for index, slots in optimizer_state["state"].items():
            for slot, value in slots.items():
                name = f"{OPTIMIZER}{index}/{slot}"
                if isinstance(value, torch.Tensor):
                    tensors[name] = _copy(value)
                else:
                    scalars[name] = value
        meta = {"param_groups": optimizer_state["param_groups"], "scalars": scalars}
    return Image(step, records, tensors, meta)


def restore(image: Image, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    """Make model and optimizer what they were; the inverse of `capture`."""
    model.load_state_dict(image.weights())
    if optimizer is not None:
        optimizer.load_state_dict({"state": _slots(image), "param_groups": _groups(image.meta["param_groups"])})


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True).contiguous()


def _slots(image: Image) -> dict[int, dict[str, Any]]:
    state: dict[int, dict[str, Any]] = {}
    named: Mapping[str, Any] = {**image.tensors, **image.meta["scalars"]}
    for name, value in named.items():
        if name.startswith(OPTIMIZER):
            index, slot = name.removeprefix(OPTIMIZER).split("/", 1)
            state.setdefault(int(index), {})[slot] = value
    return state


def _groups(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # JSON knows no tuples; torch's optimizers only have one, the betas of Adam.
    return [{k: tuple(v) if k == "betas" else v for k, v in group.items()} for group in groups]
