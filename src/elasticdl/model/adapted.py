"""Marker classes for models and optimizers, so that code need not test for their attributes.

They import neither another framework nor the native core, so that a job without them can ask the same questions.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from elasticdl.checkpoint.captured_state import CapturedState

if TYPE_CHECKING:  # needs the native core
    from elasticdl.model.embeddings.interface import EmbeddingLayers


class TableModule(nn.Module):
    """A module that may have embedding rows in a table instead of a parameter."""

    @property
    def has_table(self) -> bool:
        return True


class AdaptedModule(TableModule):
    """A model of another framework behind the interface of a torch module."""

    @abstractmethod
    def attach_tables(self, optimizer: AdaptedOptimizer) -> EmbeddingLayers:
        """Its layers that have tables, which the rule of this optimizer updates."""

    @abstractmethod
    def restore_rows(self, captured: CapturedState, directory: Path) -> CapturedState:
        """The captured state of the checkpoint in `directory`, with the rows that were on ps."""


class AdaptedOptimizer(torch.optim.Optimizer):
    """An optimizer of another framework behind the interface of a torch optimizer."""


def has_tables(model: nn.Module) -> bool:
    """Whether a layer of the model has its rows in a table."""
    return any(isinstance(module, TableModule) and module.has_table for module in model.modules())
