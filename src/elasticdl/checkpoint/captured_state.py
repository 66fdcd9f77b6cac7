"""A captured training state: tensors by name and a little JSON.

Checkpoints write it, newcomers receive it, evaluation reads the weights from it.
It is a copy: training goes on while it is written or sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from elasticdl.checkpoint import values
from elasticdl.errors import ModelError

MODEL_PREFIX = "model/"
OPTIMIZER_PREFIX = "optimizer/"
# Keys that cannot be confused with the index of a parameter.
GROUPS_KEY = "groups"  # tensors inside param_groups
FURTHER_KEY = "further"  # optimizers other than the first
USER_KEY = "user"  # objects of the user's script, see worker/training/user_state.py

COMPILED_PREFIX = "_orig_mod."  # prefix of the names in a module that torch.compile has wrapped


@dataclass(frozen=True, slots=True)
class CapturedState:
    """The state after `step` steps, which trained `records` records."""

    step: int
    records: int
    tensors: dict[str, torch.Tensor]
    meta: dict[str, Any]  # JSON values only

    def weights(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by their names in the model."""
        return {name.removeprefix(MODEL_PREFIX): t for name, t in self.tensors.items() if name.startswith(MODEL_PREFIX)}


def capture_state(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    step: int,
    records: int,
    further: Sequence[torch.optim.Optimizer] = (),
) -> CapturedState:
    """Copy the state to host memory. The only part of a checkpoint that training waits for.

    `further` are optimizers beside the first.
    """
    tensors: dict[str, torch.Tensor] = {}
    meta: dict[str, Any] = {}
    extra_state: dict[str, Any] = {}
    for key, value in model.state_dict().items():
        name = key.replace(COMPILED_PREFIX, "")
        if isinstance(value, torch.Tensor):
            tensors[MODEL_PREFIX + name] = values.copy_to_host(value)
        else:  # the result of a module's get_extra_state
            extra_state[name] = values.pack_value(value, f"{OPTIMIZER_PREFIX}extra/{name}", tensors)
    if extra_state:
        meta["extra_state"] = extra_state
    if optimizer is not None:
        meta |= _capture_optimizer(optimizer, OPTIMIZER_PREFIX, tensors)
    if further:
        meta[FURTHER_KEY] = [
            _capture_optimizer(further_optimizer, f"{OPTIMIZER_PREFIX}{FURTHER_KEY}/{number}/", tensors)
            for number, further_optimizer in enumerate(further)
        ]
    return CapturedState(step, records, tensors, meta)


def _capture_optimizer(optimizer: torch.optim.Optimizer, prefix: str, tensors: dict[str, torch.Tensor]) -> Any:
    state = optimizer.state_dict()
    scalars: dict[str, Any] = {}
    for index, slots in state["state"].items():
        for slot, value in slots.items():
            name = f"{prefix}{index}/{slot}"
            if isinstance(value, torch.Tensor):
                tensors[name] = values.copy_to_host(value)
            else:
                scalars[name] = values.pack_value(value, name, tensors)
    groups = [
        {key: values.pack_value(value, f"{prefix}{GROUPS_KEY}/{number}/{key}", tensors) for key, value in group.items()}
        for number, group in enumerate(state["param_groups"])
    ]
    return {"param_groups": groups, "scalars": scalars}


def restore_state(
    captured: CapturedState,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    further: Sequence[torch.optim.Optimizer] = (),
) -> None:
    """Restore model and optimizers; the inverse of `capture_state`. They share no memory with the captured state.

    Raises ModelError if the captured state is of another model or of other optimizers.
    """
    extra_state = {
        name: values.unpack_value(v, captured.tensors) for name, v in captured.meta.get("extra_state", {}).items()
    }
    try:
        own_names = {name.replace(COMPILED_PREFIX, ""): name for name in model.state_dict()}
        model.load_state_dict(
            {own_names.get(name, name): v for name, v in {**captured.weights(), **extra_state}.items()}
        )
    except RuntimeError as exc:
        raise ModelError(f"the weights of step {captured.step} do not fit the model: {exc}") from exc
    if optimizer is None:
        return
    if "param_groups" not in captured.meta:
        raise ModelError(
            f"the state of step {captured.step} has only weights; training needs the optimizer's state, too"
        )
    others = captured.meta.get(FURTHER_KEY, [])
    if len(others) != len(further):
        raise ModelError(
            f"the state of step {captured.step} has {1 + len(others)} optimizers, and the script has {1 + len(further)}"
        )
    _restore_optimizer(optimizer, OPTIMIZER_PREFIX, captured.meta, captured)
    for number, (further_optimizer, meta) in enumerate(zip(further, others, strict=True)):
        _restore_optimizer(further_optimizer, f"{OPTIMIZER_PREFIX}{FURTHER_KEY}/{number}/", meta, captured)


def _restore_optimizer(optimizer: torch.optim.Optimizer, prefix: str, meta: Any, captured: CapturedState) -> None:
    groups = [
        {key: values.unpack_value(value, captured.tensors) for key, value in group.items()}
        for group in meta["param_groups"]
    ]
    slots = _optimizer_slots(captured, prefix, meta["scalars"])
    try:
        optimizer.load_state_dict({"state": slots, "param_groups": groups})
    except ValueError as exc:
        raise ModelError(f"the optimizer of step {captured.step} does not fit this one: {exc}") from exc
    _undo_casts(optimizer, slots)


def _optimizer_slots(captured: CapturedState, prefix: str, scalars: dict[str, Any]) -> dict[int, dict[str, Any]]:
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in captured.tensors.items():
        index, _, slot = name.removeprefix(prefix).partition("/")
        # A name with a further part belongs to a list inside a slot; its scalar refers to it.
        if name.startswith(prefix) and index.isdigit() and "/" not in slot:
            state.setdefault(int(index), {})[slot] = tensor.clone()
    for name, value in scalars.items():
        index, _, slot = name.removeprefix(prefix).partition("/")
        state.setdefault(int(index), {})[slot] = values.unpack_value(value, captured.tensors)
    return state


def _undo_casts(optimizer: torch.optim.Optimizer, slots: dict[int, dict[str, Any]]) -> None:
    # load_state_dict casts every slot to its parameter's dtype; NAdam and ASGD keep float32 scalars beside
    # float64 or bfloat16 parameters, and a cast there would change the bits of every later step.
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, saved in slots.items():
        state = optimizer.state[parameters[index]]
        for slot, value in saved.items():
            if isinstance(value, torch.Tensor) and state[slot].dtype != value.dtype:
                state[slot] = value.to(state[slot].device)
