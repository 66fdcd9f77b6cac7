"""Checks what `join` is given before the first step, and refuses code that would train something else than it says.

Each error names what was found and what to write instead.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterable, Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler

from elasticdl.checkpoint import tensors
from elasticdl.errors import SpecError
from elasticdl.model.compiled import is_compiled
from elasticdl.worker.training.user_state import UserState

_WRAPPERS = {
    "DistributedDataParallel": "join sums gradients over the workers itself: pass the plain model, without DDP",
    "DataParallel": "each worker is a process of its own: pass the plain model, without DataParallel",
    "FullyShardedDataParallel": "sharded models are not supported: each worker holds a whole model; pass the plain one",
}


def check_model(model: nn.Module) -> None:
    """Raise SpecError if workers that each hold a copy cannot train the model."""
    for module in model.modules():
        kind = type(module).__name__
        if kind in _WRAPPERS or kind.startswith("FSDP"):
            raise SpecError(
                f"join: the model is wrapped in {kind}; {_WRAPPERS.get(kind, _WRAPPERS['FullyShardedDataParallel'])}"
            )
        if isinstance(module, nn.SyncBatchNorm):
            raise SpecError(
                "join: the model has a SyncBatchNorm, which needs a process group of torch.distributed; use BatchNorm: "
                "each logical rank normalises its own slice of the batch, whatever the number of workers"
            )
    lazy = [name for name, tensor in [*model.named_parameters(), *model.named_buffers()] if is_lazy(tensor)]
    if lazy:
        raise SpecError(
            f"join: {lazy[0]} has no shape yet (a lazy module); run one batch through the model before the optimizer "
            "is made and join is called: model(features)"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise SpecError("join: no parameter of the model requires a gradient, so there is nothing to train")
    sharded = [name for name, p in model.named_parameters() if type(p).__name__ == "DTensor" or p.is_sparse]
    if sharded:
        raise SpecError(f"join: {sharded[0]} is a distributed or sparse tensor; expected plain dense parameters")
    for name, value in model.state_dict().items():
        if isinstance(value, torch.Tensor) and not tensors.can_hold(value.dtype):
            raise SpecError(
                f"join: {name} is of {value.dtype}, which neither checkpoints nor state transfers support; keep it in "
                "another type, such as torch.uint8"
            )


def warn_of_cold_compile(models: Iterable[nn.Module]) -> None:
    """Warn if torch.compile would compile in the first step, while the other workers wait."""
    if any(is_compiled(model) for model in models):
        warnings.warn(
            "join: torch.compile compiles the model in the first step of every worker, while all others wait; write "
            "join(…, warm_up=lambda features, labels: loss), with the loss as the loop computes it, and a worker "
            "compiles before it joins",
            UserWarning,
            stacklevel=3,
        )


def check_optimizers(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Raise SpecError if an update would not be the same in all workers."""
    model_parameters = {id(parameter) for parameter in model.parameters()}
    for number, optimizer in enumerate(optimizers):
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise SpecError(f"join: expected an optimizer of torch; received {type(optimizer).__name__}")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise SpecError(
                "join: LBFGS evaluates its closure several times in a step, each over all workers; this is not "
                "supported. Use an optimizer that takes one gradient per step, such as SGD or AdamW"
            )
        if isinstance(optimizer, torch.optim.SparseAdam):
            raise SpecError(
                "join: SparseAdam wants sparse gradients, and gradients are summed densely; use Adam or AdamW, or "
                "elasticdl.torch.Embedding, whose rows live on parameter servers and are updated sparsely"
            )
        for group in optimizer.param_groups:
            if any(id(parameter) not in model_parameters for parameter in group["params"]):
                raise SpecError(
                    f"join: optimizer {number} has parameters that are not in the model, so their gradients would stay "
                    "in each worker; pass all modules that are trained: join([model, criterion], optimizer, …)"
                )


def check_unknown_state(optimizers: Sequence[torch.optim.Optimizer], state: UserState) -> None:
    """Raise SpecError for an LR scheduler or GradScaler in use that join does not know."""
    if _find_unknown_state(optimizers, state):
        gc.collect()  # unreachable objects do not count
        problem = _find_unknown_state(optimizers, state)
        if problem:
            raise SpecError(problem)


def _find_unknown_state(optimizers: Sequence[torch.optim.Optimizer], state: UserState) -> str:
    nested = {id(inner) for item in state.objects.values() for inner in _inner_schedulers(item)}
    kinds = _list_subclasses(LRScheduler) | _list_subclasses(torch.amp.GradScaler)
    # An object refers to its class. Uses type() and not isinstance(): some objects import modules in __class__.
    for item in [item for item in gc.get_referrers(*kinds) if type(item) in kinds]:
        if isinstance(item, LRScheduler) and getattr(item, "optimizer", None) in optimizers:
            if not state.contains(item) and id(item) not in nested:
                return (
                    f"join: the optimizer has a {type(item).__name__}; write join(…, schedulers=scheduler): the job "
                    "steps it once per update, keeps it in checkpoints and hands it to new workers. To step it "
                    "yourself after optimizer.step(), write state={'scheduler': scheduler}"
                )
        elif isinstance(item, torch.amp.GradScaler) and item.is_enabled() and not state.contains(item):
            return (
                "join: there is a GradScaler; write join(…, state={'scaler': scaler}) and "
                "step.backward(loss, scaler=scaler), so that all workers scale alike"
            )
    return ""


def _list_subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_list_subclasses, kind.__subclasses__()))


def _inner_schedulers(scheduler: object) -> list[object]:
    """Schedulers inside of another one, which steps them. torch has no public attribute for them."""
    inner = list(getattr(scheduler, "_schedulers", None) or [])
    return [*inner, *(item for scheduler in inner for item in _inner_schedulers(scheduler))]
