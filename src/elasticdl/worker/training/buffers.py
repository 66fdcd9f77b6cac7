"""The buffers of a model, such as the statistics of BatchNorm. All workers take those of logical rank 0."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from elasticdl.collective.group import Group


class ModelBuffers:
    """Copies a model's buffers by name. A step needs them several times, so modules are walked only once."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._registries: list[dict[str, torch.Tensor | None]] = []  # of each module
        self._count = -1  # entries in them when the modules were walked
        self._locations: list[tuple[str, dict[str, torch.Tensor | None], str]] = []

    def capture(self) -> dict[str, torch.Tensor]:
        return {name: buffer.detach().clone() for name, buffer in self._list_named()}

    def restore(self, values: Mapping[str, torch.Tensor]) -> None:
        """Set the buffers to `values`; a buffer that was registered since then, perhaps by a forward pass, stays."""
        with torch.no_grad():
            for name, buffer in self._list_named():
                if name in values:
                    buffer.copy_(values[name])

    def _list_named(self) -> list[tuple[str, torch.Tensor]]:
        """As `named_buffers`: tensors that modules share come once."""
        if sum(map(len, self._registries)) != self._count:
            self._walk_modules()
        return [(name, buffer) for name, registry, key in self._locations if (buffer := registry[key]) is not None]

    def _walk_modules(self) -> None:
        modules = dict(self._model.named_modules())
        self._registries = [module._buffers for module in modules.values()]
        self._count = sum(map(len, self._registries))
        self._locations, seen = [], set()
        for prefix, module in modules.items():
            for key, buffer in module._buffers.items():
                if buffer is None or id(buffer) not in seen:
                    self._locations.append((f"{prefix}.{key}" if prefix else key, module._buffers, key))
                    seen |= {id(buffer)} if buffer is not None else set()


def broadcast_buffers(buffers: Mapping[str, torch.Tensor], group: Group, root: int) -> dict[str, torch.Tensor]:
    """The buffers of member `root`, in one message. All members pass buffers of the same shapes."""
    if not buffers or group.size == 1:
        return dict(buffers)
    parts = [buffer.contiguous().reshape(-1).view(torch.uint8) for buffer in buffers.values() if buffer.numel()]
    packed = torch.cat(parts).cpu()
    group.broadcast(packed, root)
    received, start = {}, 0
    for name, buffer in buffers.items():
        size = buffer.numel() * buffer.element_size()
        received[name] = packed[start : start + size].clone().view(buffer.dtype).view(buffer.shape)
        start += size
    return received
