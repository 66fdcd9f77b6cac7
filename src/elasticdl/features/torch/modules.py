"""A torch module for each transform, of the same name and with the same result to the bit, and an embedding of ids."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor, nn

from elasticdl.errors import DataError
from elasticdl.features import transforms
from elasticdl.features.torch import tensor_columns
from elasticdl.features.torch.ops import TORCH_OPS
from elasticdl.features.transforms import Transform, array_columns
from elasticdl.features.transforms.base import check_bins
from elasticdl.features.transforms.categorical import check_columns


class TransformModule(nn.Module):
    """A transform as a module without parameters. Its tables are buffers, which move with it to a device."""

    definition_class: ClassVar[Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        is_defined = len(args) == 1 and isinstance(args[0], self.definition_class)
        self.definition = args[0] if is_defined else self.definition_class(*args, **options)
        for name, table in self.definition.tables.items():
            self.register_buffer(f"table_{name}", torch.from_numpy(table.copy()), persistent=False)

    @classmethod
    def from_definition(cls, definition: Transform) -> Self:
        """Returns the module of a definition."""
        return cls(definition)

    @classmethod
    def from_statistics(cls, name: str, **options: Any) -> Self:
        """Returns the module of `definition_class.from_statistics(name, **options)`."""
        return cls.from_definition(cls.definition_class.from_statistics(name, **options))

    def forward(self, values: Any) -> Any:
        if not isinstance(values, torch.Tensor) and not tensor_columns.is_ragged_pair(values):
            return tensor_columns.tensors_from_arrays(self.definition.transform_arrays(values))
        return self.transform_tensors(values)

    def transform_tensors(self, values: Any) -> Any:
        return tensor_columns.map_values(partial(self.definition.compute, TORCH_OPS, tables=self.constants()), values)

    def constants(self) -> dict[str, torch.Tensor]:
        return {name: getattr(self, f"table_{name}") for name in self.definition.tables}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self.definition, name)!r}" for name in self.definition.__dataclass_fields__)


class Clip(TransformModule):
    definition_class = transforms.Clip


class DateParts(TransformModule):
    definition_class = transforms.DateParts


class Discretization(TransformModule):
    definition_class = transforms.Discretization


class FieldIds(TransformModule):
    definition_class = transforms.FieldIds


class Hashing(TransformModule):
    definition_class = transforms.Hashing


class IndexLookup(TransformModule):
    definition_class = transforms.IndexLookup


class LogRound(TransformModule):
    definition_class = transforms.LogRound


class LogSquare(TransformModule):
    definition_class = transforms.LogSquare


class MissingIndicator(TransformModule):
    definition_class = transforms.MissingIndicator


class Normalizer(TransformModule):
    definition_class = transforms.Normalizer


class RoundIdentity(TransformModule):
    definition_class = transforms.RoundIdentity


class ToNumber(TransformModule):
    definition_class = transforms.ToNumber


class Sequence(TransformModule):
    """Splits text, which has no tensors: it takes lists and Arrow, runs outside of exports and returns `Ragged`."""

    definition_class = transforms.Sequence

    def transform_tensors(self, values: Any) -> Any:
        raise DataError("Sequence: expected a column of text. Received: numbers")


class ToRagged(TransformModule):
    """Returns `Ragged`."""

    definition_class = transforms.ToRagged

    def transform_tensors(self, values: Any) -> Any:
        rows = tensor_columns.as_ragged(values)
        kind = TORCH_OPS.kind(rows.values)
        ignored = array_columns.resolve_ignore_value(kind, self.definition.ignore_value, owner="ToRagged", floats=None)
        if ignored is None:
            return rows
        return tensor_columns.filter_values(rows, rows.values != _tensor_like(rows.values, ignored))


class ToSparse(TransformModule):
    """Returns a sparse tensor (COO)."""

    definition_class = transforms.ToSparse

    def transform_tensors(self, values: Any) -> Any:
        if tensor_columns.is_ragged_pair(values) or values.is_nested:
            raise DataError("ToSparse: expected a dense column. Received: a ragged one")
        if values.layout == torch.sparse_coo:
            return values
        ignored = array_columns.resolve_ignore_value(
            TORCH_OPS.kind(values), self.definition.ignore_value, owner="ToSparse", floats=0.0
        )
        return tensor_columns.make_sparse(values, values != _tensor_like(values, ignored))


class ConcatenateWithOffset(TransformModule):
    definition_class = transforms.ConcatenateWithOffset

    def forward(self, values: Any) -> Any:
        if not isinstance(values, list | tuple) or not _is_tensors(values[0]):
            return tensor_columns.tensors_from_arrays(self.definition.transform_arrays(values))
        return tensor_columns.concatenate_columns(list(values), self.definition.resolve_offsets(len(values)))


class Cross(TransformModule):
    """Crosses tensors of up to three columns in torch; more columns, and text, in NumPy."""

    definition_class = transforms.Cross

    def forward(self, values: Any) -> Any:
        check_columns(values)
        if not all(_is_tensors(column) for column in values):
            return tensor_columns.tensors_from_arrays(self.definition.transform_arrays(values))
        ragged = [tensor_columns.is_ragged_pair(column) for column in values]
        flat = [column[0] if is_ragged else column for column, is_ragged in zip(values, ragged, strict=True)]
        is_same_shape = all(column.shape == flat[0].shape for column in flat) and len(set(ragged)) == 1
        if not is_same_shape or (ragged[0] and any(not torch.equal(column[1], values[0][1]) for column in values[1:])):
            raise DataError("Cross: expected columns of the same shape, with the same number of values in each row")
        if any(column.is_nested or column.layout != torch.strided for column in flat):
            raise DataError("Cross: expected dense columns, or pairs (values, splits)")
        return tensor_columns.map_values(lambda _: self.definition.compute(TORCH_OPS, flat, {}), values[0])


def _is_tensors(column: Any) -> bool:
    return isinstance(column, torch.Tensor) or tensor_columns.is_ragged_pair(column)


def _tensor_like(values: torch.Tensor, number: float) -> torch.Tensor:
    return torch.tensor(number, dtype=values.dtype, device=values.device)


Combiner = Literal["sum", "mean", "sqrtn"]


class SparseEmbedding(nn.Module):
    """Returns one vector for all ids of a row: the sum or mean of their vectors, or the sum over the root of the count.

    Ids below zero are left out, and 0 among dense ids; a row without ids has zeros. It computes the same as
    TensorFlow's `safe_embedding_lookup_sparse` and `elasticdl.keras.features.SparseEmbedding`. Ids are dense
    [rows, ids], jagged, sparse (COO), or a pair (values, splits). For rows on ps use `elasticdl.torch.EmbeddingBag`.
    """

    def __init__(self, input_dim: int, output_dim: int, combiner: Combiner = "mean") -> None:
        super().__init__()
        check_bins("SparseEmbedding", "input_dim", input_dim)
        check_bins("SparseEmbedding", "output_dim", output_dim)
        if combiner not in get_args(Combiner):
            raise ValueError(f"SparseEmbedding: expected a combiner of sum, mean, sqrtn. Received: {combiner!r}")
        self.combiner = combiner
        self.weight = nn.Parameter(torch.empty(input_dim, output_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights uniformly between -0.05 and 0.05, as Keras does."""
        nn.init.uniform_(self.weight, -0.05, 0.05)

    def forward(self, ids: Any) -> Tensor:
        is_dense = isinstance(ids, Tensor) and not ids.is_nested and ids.layout == torch.strided
        rows = tensor_columns.as_ragged(ids)
        keep = rows.values > 0 if is_dense else rows.values >= 0
        # Ids that are left out have weight 0, so that shapes do not depend on the values.
        count = rows.splits.shape[0] - 1
        weights = keep.to(self.weight.dtype)
        row = torch.searchsorted(rows.splits, torch.arange(len(rows.values), device=keep.device), right=True) - 1
        vectors = self.weight[torch.where(keep, rows.values, 0)] * weights[:, None]
        sums: Tensor = vectors.new_zeros(count, self.weight.shape[1]).index_add(0, row, vectors)
        if self.combiner == "sum":
            return sums
        numbers = weights.new_zeros(count).index_add(0, row, weights).clamp(min=1)[:, None]
        combined: Tensor = sums / (numbers if self.combiner == "mean" else numbers.sqrt())
        return combined

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}, combiner={self.combiner!r}"
