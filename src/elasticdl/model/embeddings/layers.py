"""`elasticdl.torch.Embedding` and `EmbeddingBag`: layers over tables that grow as ids are seen.

Their rows become part of an export.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from elasticdl.errors import ModelError
from elasticdl.model.adapted import TableModule
from elasticdl.model.embeddings.row_sources import ReadOnlyRows, RowSource
from elasticdl.ps.client.local_tables import LocalTables
from elasticdl.ps.client.lookups import LookupResult
from elasticdl.ps.tables.initializer import Initializer
from elasticdl.ps.tables.optimizer import RULES, Optimizer
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.messages import Floats, Ids

_INTEGER_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class TableLayer(TableModule):
    """The base of both layers: a table, and where its rows come from. Rows are no parameters of the model."""

    def __init__(
        self,
        output_dim: int,
        *,
        name: str | None = None,
        input_dim: int | None = None,
        initializer: str | Mapping[str, object] | Initializer = "uniform",
        optimizer: str | Optimizer | None = None,
        storage: Literal["float32", "bfloat16"] = "float32",
        admit_after: int = 1,
        ttl_s: float = 0.0,
        padding_idx: int | None = None,
        max_norm: None = None,
    ) -> None:
        """Args:
        output_dim: columns of a row.
        name: of the table; layers of the same name share it. Default: the name of the layer in the model.
        input_dim: the number of ids; then others are refused. Default: any int64 is an id.
        initializer: of new rows, e.g. "zeros", "normal", an `Initializer`, or its fields.
        optimizer: the rule that updates rows, e.g. "adagrad", or an `Optimizer`. Default: the model's own. The
            learning rate is that of the model's optimizer in any case.
        storage: of a row's values on the ps.
        admit_after: how often an id must be seen to get a row; until then it has initial values.
        ttl_s: a row that was not used for this long is dropped; 0: never.
        padding_idx: the row of this id is zeros, and is not trained.
        """
        super().__init__()
        self.output_dim = output_dim
        self.input_dim = input_dim
        self.padding_idx = padding_idx
        self.name = name
        self.table = name or ""  # the name of the layer in the model, once that is known
        self.stored: StoredRows | None = None  # rows inside of the model, in an export
        self._source: RowSource | None = None
        if max_norm is not None:
            raise self.make_error("no max_norm with rows on ps", f"max_norm={max_norm}; leave it out")
        if isinstance(optimizer, str) and optimizer not in RULES:
            raise self.make_error(f"optimizer as one of {', '.join(RULES)}, or an Optimizer", repr(optimizer))
        self.optimizer = Optimizer.model_validate({"rule": optimizer}) if isinstance(optimizer, str) else optimizer
        if self.optimizer is not None and "learning_rate" in self.optimizer.model_fields_set:
            raise self.make_error("the learning rate of the model's optimizer, which all tables have", "one of its own")
        first = {"kind": initializer} if isinstance(initializer, str) else initializer
        try:
            first = Initializer.model_validate(first)
        except ValidationError as exc:
            raise self.make_error("an initializer", f"{initializer!r}: {exc.errors()[0]['msg']}") from exc
        self._spec = TableSpec(
            name="", columns=output_dim, rows=input_dim, initializer=first,
            storage=storage, admit_after=admit_after, ttl_s=ttl_s,
        )  # fmt: skip

    @property
    def label(self) -> str:
        """For messages."""
        return f"{type(self).__name__} {self.table}" if self.table else type(self).__name__

    @property
    def weight(self) -> Tensor:
        raise ModelError(
            f"{self.label}: expected to be called, for its rows lie in a table. Received: a request for its weight; "
            "a plain nn.Embedding keeps its weight with --embedding_on_ps=none"
        )

    def table_spec(self, optimizer: Optimizer) -> TableSpec:
        """The specification of its table, updated by this rule."""
        return self._spec.model_copy(update={"name": self.table, "optimizer": optimizer})

    def attach_source(self, source: RowSource) -> None:
        self._source = source

    def store_rows(self, ids: Ids, rows: Floats) -> None:
        """Hold these rows from here on, and look up no others."""
        self.stored = StoredRows.from_rows(ids, rows, self._spec.initializer)

    def make_error(self, expected: str, received: str) -> ModelError:
        return ModelError(f"{self.label}: expected {expected}. Received: {received}")

    def look_up(self, ids: Tensor) -> Tensor:
        """The rows of one-dimensional `ids`."""
        if ids.dtype not in _INTEGER_TYPES:
            kind = str(ids.dtype).removeprefix("torch.")
            raise self.make_error("ids as int64 or int32", f"{kind}{list(ids.shape)}; make them integers in dataset_fn")
        dropped = None if self.padding_idx is None else ids == self.padding_idx
        rows = self.stored(ids.long()) if self.stored is not None else self._find_rows(ids)
        return rows if dropped is None else rows.masked_fill(dropped.unsqueeze(1), 0.0)

    def _find_rows(self, ids: Tensor) -> Tensor:
        source = self._source or self._use_initial_rows()
        numbers = ids.detach().to("cpu", torch.int64).numpy()
        lookup = source.find(self.table, numbers)
        distinct = lookup.plan.ids
        if self.input_dim is not None and len(distinct) and not 0 <= distinct.min() <= distinct.max() < self.input_dim:
            raise self.make_error(
                f"ids from 0 to {self.input_dim - 1}", f"ids from {distinct.min()} to {distinct.max()}"
            )
        anchor = torch.zeros(0, device=ids.device, requires_grad=True)
        rows: Tensor = GatherRows.apply(anchor, source, self.table, lookup)  # type: ignore[no-untyped-call]
        return rows

    def _use_initial_rows(self) -> RowSource:
        """Outside of a job, rows have their initial values, and none is kept."""
        tables = LocalTables(seed=0)
        tables.declare([self.table_spec(Optimizer())])
        self._source = ReadOnlyRows(tables)
        return self._source

    def extra_repr(self) -> str:
        return f"{self.output_dim}, table={self.table!r}"


class Embedding(TableLayer):
    """Looks up a row for each id: ids of any shape [..] become rows [.., output_dim]."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.look_up(ids.reshape(-1)).reshape(*ids.shape, self.output_dim)


class EmbeddingBag(TableLayer):
    """Looks up one row for several ids: their sum, mean, or sum divided by the root of their number.

    With weights, the mean is divided by their sum, `sqrtn` by the root of the sum of their squares. A bag without
    ids is zeros; ids equal to `padding_idx` do not count.
    """

    def __init__(
        self,
        output_dim: int,
        *,
        combiner: Literal["sum", "mean", "sqrtn"] = "mean",
        include_last_offset: bool = False,
        **options: Any,
    ) -> None:
        """Takes the options of `Embedding`, too. `include_last_offset`: offsets end with the number of all ids."""
        super().__init__(output_dim, **options)
        if combiner not in ("sum", "mean", "sqrtn"):
            raise self.make_error("combiner as sum, mean or sqrtn", repr(combiner))
        self.combiner = combiner
        self.include_last_offset = include_last_offset

    def forward(
        self,
        ids: Tensor | tuple[Tensor, Tensor],
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """`ids` is [bags, ids], a jagged nested tensor, or all ids one after another with where each bag begins."""
        if isinstance(ids, tuple):
            ids, offsets = ids
        is_jagged = ids.is_nested
        if is_jagged:
            ids, offsets = ids.values(), ids.offsets()[:-1]  # type: ignore[attr-defined]
            if per_sample_weights is not None and per_sample_weights.is_nested:
                per_sample_weights = per_sample_weights.values()
        if per_sample_weights is not None and per_sample_weights.shape != ids.shape:
            raise self.make_error(
                f"a weight for each id, {list(ids.shape)}", f"weights {list(per_sample_weights.shape)}"
            )
        if offsets is None:
            if ids.ndim != 2:
                raise self.make_error("ids [bags, ids], or offsets with them", f"ids {list(ids.shape)} without offsets")
            bags = torch.arange(ids.shape[0], device=ids.device).repeat_interleave(ids.shape[1])
            count = ids.shape[0]
        else:
            if ids.ndim != 1 or offsets.ndim != 1:
                raise self.make_error(
                    "ids and offsets in one dimension", f"ids {list(ids.shape)}, offsets {list(offsets.shape)}"
                )
            starts = offsets if is_jagged or not self.include_last_offset else offsets[:-1]
            bags = torch.searchsorted(starts, torch.arange(ids.shape[0], device=ids.device), right=True) - 1
            count = starts.shape[0]
        weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        return self._combine(ids.reshape(-1), bags, count, weights)

    def _combine(self, ids: Tensor, bags: Tensor, count: int, weights: Tensor | None) -> Tensor:
        rows = self.look_up(ids)
        if weights is not None:
            rows = rows * weights.unsqueeze(1)
        sums = rows.new_zeros(count, self.output_dim).index_add(0, bags, rows)
        if self.combiner == "sum":
            return sums
        shares = rows.new_ones(ids.shape[0]) if weights is None else weights.to(rows.dtype)
        if self.combiner == "sqrtn":
            shares = shares.square()
        if self.padding_idx is not None:
            shares = shares.masked_fill(ids == self.padding_idx, 0.0)
        total = rows.new_zeros(count).index_add(0, bags, shares)
        divisor = total.sqrt() if self.combiner == "sqrtn" else total
        return sums / divisor.masked_fill(divisor == 0.0, 1.0).unsqueeze(1)


class GatherRows(torch.autograd.Function):
    """Gathers rows, and sends their gradients to the source.

    `anchor` is an empty tensor on the device of the rows. It requires a gradient, so that there is a backward pass.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, source: RowSource, table: str, lookup: LookupResult) -> Tensor:
        ctx.source, ctx.table, ctx.lookup = source, table, lookup
        rows = torch.from_numpy(lookup.rows)
        gathered = rows.index_select(0, torch.from_numpy(lookup.plan.inverse))
        return gathered.to(anchor.device)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None, None]:
        sums = ctx.lookup.plan.sum_gradients(gradient.to("cpu", torch.float32).contiguous().numpy())
        ctx.source.give_gradients(ctx.table, ctx.lookup, sums)
        return None, None, None, None


class StoredRows(nn.Module):
    """Rows inside of the model: `rows[i]` is the row of `ids[i]`. Ids are sorted; others have the row `other`."""

    ids: Tensor
    rows: Tensor
    other: Tensor

    def __init__(self, count: int, columns: int) -> None:
        super().__init__()
        self.register_buffer("ids", torch.zeros(count, dtype=torch.int64))
        self.register_buffer("rows", torch.zeros(count, columns))
        self.register_buffer("other", torch.zeros(columns))

    @classmethod
    def from_rows(cls, ids: Ids, rows: Floats, initializer: Initializer) -> StoredRows:
        """Hold these rows. An id that was not trained has the mean of its initializer."""
        columns = rows.shape[1]
        mean = _mean_value(initializer)
        if not len(ids):  # a search needs something to search in
            ids, rows = np.zeros(1, np.int64), np.full((1, columns), mean, np.float32)
        order = np.argsort(ids, kind="stable")
        built = cls(len(ids), columns)
        built.ids.copy_(torch.from_numpy(ids[order]))
        built.rows.copy_(torch.from_numpy(rows[order]))
        built.other.fill_(mean)
        return built

    def forward(self, ids: Tensor) -> Tensor:
        """The rows of one-dimensional `ids`."""
        indices = torch.searchsorted(self.ids, ids).clamp(max=self.ids.shape[0] - 1)
        is_known = (self.ids[indices] == ids).unsqueeze(1)
        return torch.where(is_known, self.rows[indices], self.other)


def _mean_value(initializer: Initializer) -> float:
    match initializer.kind:
        case "constant":
            return initializer.value
        case "uniform":
            return (initializer.low + initializer.high) / 2
        case "normal" | "truncated_normal":
            return initializer.mean
        case _:
            return 0.0
