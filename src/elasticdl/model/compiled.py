"""Handles models that are compiled, as a whole (`torch.compile(model)`, `model.compile()`) or in parts.

torch has no class for its wrapper that could be asked for: it is recognised by its attribute `_orig_mod`.
"""

from __future__ import annotations

from torch import nn

from elasticdl.errors import SpecError


def is_compiled(model: nn.Module) -> bool:
    """Whether the model, or a part of it, compiles when it is called."""
    return any(_is_wrapper(part) or part._compiled_call_impl is not None for part in model.modules())


def unwrap_compiled(model: nn.Module) -> nn.Module:
    """The model inside of the wrapper of torch.compile, whose names have no prefix; `model` itself if not wrapped."""
    original = getattr(model, "_orig_mod", model)
    assert isinstance(original, nn.Module)
    return original


def make_eager(model: nn.Module) -> nn.Module:
    """The model with the same parameters, which compiles nothing when it is called.

    For a thread beside the one that trains: compiling saves and restores the random numbers of the whole process.
    """
    model = unwrap_compiled(model)
    for part in model.modules():
        part._compiled_call_impl = None
        if _is_wrapper(part):
            part.forward = unwrap_compiled(part).__call__
    return model


def check_compiles_parts(model: nn.Module) -> None:
    """Raise SpecError if a model whose rows are on ps is compiled as a whole."""
    if unwrap_compiled(model) is not model or model._compiled_call_impl is not None:
        raise SpecError(
            "torch.compile: the model looks rows up on ps, which cannot be compiled; compile the parts "
            "without embeddings, e.g. model.tower = torch.compile(model.tower), or return the plain model"
        )


def _is_wrapper(part: nn.Module) -> bool:
    return hasattr(part, "_orig_mod")
