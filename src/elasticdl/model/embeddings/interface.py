"""The embedding layers of a model as the worker uses them, in whichever framework."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import nn

from elasticdl.model.embeddings.row_sources import RowSource
from elasticdl.ps.client.lookups import TableClient
from elasticdl.ps.tables.optimizer import Optimizer
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.messages import Floats, Ids


class IdLookahead(Protocol):
    """Predicts from the features of a batch which ids the model will look up."""

    def begin_batch(self, features: Any) -> None:
        """A batch with these features is about to be computed."""

    def predict_ids(self, features: Any) -> dict[str, list[Ids]]:
        """By table, the ids that a batch with these features will look up, as far as can be predicted."""


class EmbeddingLayers(Protocol):
    """The layers of one model that have tables."""

    @property
    def table_specs(self) -> list[TableSpec]: ...

    @property
    def optimizer_rule(self) -> Optimizer:
        """The rule of the model's optimizer."""

    def lookahead(self) -> IdLookahead: ...

    def for_model(self, model: nn.Module) -> EmbeddingLayers:
        """The layers of another model of the same kind, without the values it was built with."""

    def attach_source(self, source: RowSource) -> None:
        """Let all layers look their rows up in `source`."""

    def put_initial_rows(self, tables: TableClient) -> None:
        """Put the values that layers were built with into their tables."""

    def drop_initial_rows(self) -> None:
        """Free the values that layers were built with: the tables have them."""

    def full_model(
        self, tables: TableClient, rows: Callable[[str], tuple[Ids, Floats]]
    ) -> AbstractContextManager[None]:
        """While it is open, the model holds all its rows. `rows(table)` gives all ids and rows of a table."""
