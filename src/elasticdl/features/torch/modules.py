"""A module of the same name for each transformation: it computes in torch what the definition does, to the bit.

A module takes the arguments of the definition, and columns as tensors (dense, jagged, sparse COO), as `Ragged` or a
pair (values, splits) of tensors, and, eagerly, as lists, NumPy and Arrow columns; the last are the only way for text.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import nn

from elasticdl.errors import DataError
from elasticdl.features import transforms
from elasticdl.features.torch import structure
from elasticdl.features.torch.ops import OPS
from elasticdl.features.transforms import Transformation, rows
from elasticdl.features.transforms.cross import expect_columns


class Module(nn.Module):
    """A transformation. It has no parameters; its tables are buffers, and move with it to a device."""

    defined: ClassVar[Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        is_defined = len(args) == 1 and isinstance(args[0], self.defined)
        self.definition = args[0] if is_defined else self.defined(*args, **options)
        for name, table in self.definition.tables.items():
            self.register_buffer(f"table_{name}", torch.from_numpy(table.copy()), persistent=False)

    @classmethod
    def of(cls, definition: Transformation) -> Self:
        """The module of this definition."""
        return cls(definition)

    @classmethod
    def from_statistics(cls, name: str, **options: Any) -> Self:
        """As that of the definition."""
        return cls.of(cls.defined.from_statistics(name, **options))

    def forward(self, values: Any) -> Any:
        if not isinstance(values, torch.Tensor) and not structure.is_pair(values):
            return structure.from_arrays(self.definition.on_arrays(values))
        return self.on_tensors(values)

    def on_tensors(self, values: Any) -> Any:
        return structure.mapped(partial(self.definition.compute, OPS, tables=self.constants()), values)

    def constants(self) -> dict[str, torch.Tensor]:
        return {name: getattr(self, f"table_{name}") for name in self.definition.tables}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self.definition, name)!r}" for name in self.definition.__dataclass_fields__)


class Clip(Module):
    defined = transforms.Clip


class DateParts(Module):
    defined = transforms.DateParts


class Discretization(Module):
    defined = transforms.Discretization


class FieldIds(Module):
    defined = transforms.FieldIds


class Hashing(Module):
    defined = transforms.Hashing


class IndexLookup(Module):
    defined = transforms.IndexLookup


class LogRound(Module):
    defined = transforms.LogRound


class LogSquare(Module):
    defined = transforms.LogSquare


class MissingIndicator(Module):
    defined = transforms.MissingIndicator


class Normalizer(Module):
    defined = transforms.Normalizer


class RoundIdentity(Module):
    defined = transforms.RoundIdentity


class ToNumber(Module):
    defined = transforms.ToNumber


class Sequence(Module):
    """Of text only, and so eager; gives `Ragged` with Arrow text."""

    defined = transforms.Sequence

    def on_tensors(self, values: Any) -> Any:
        raise DataError("Sequence: expected a column of text. Received: numbers")


class ToRagged(Module):
    """Gives `Ragged`."""

    defined = transforms.ToRagged

    def on_tensors(self, values: Any) -> Any:
        found = structure.rows_of(values)
        kind = OPS.kind(found.values)
        ignored = rows.default_ignored(kind, self.definition.ignore_value, owner="ToRagged", floats=None)
        return found if ignored is None else structure.kept(found, found.values != _like(found.values, ignored))


class ToSparse(Module):
    """Gives a sparse tensor (COO)."""

    defined = transforms.ToSparse

    def on_tensors(self, values: Any) -> Any:
        if structure.is_pair(values) or values.is_nested:
            raise DataError("ToSparse: expected a dense column. Received: a ragged one")
        if values.layout == torch.sparse_coo:
            return values
        ignored = rows.default_ignored(OPS.kind(values), self.definition.ignore_value, owner="ToSparse", floats=0.0)
        return structure.to_sparse(values, values != _like(values, ignored))


class ConcatenateWithOffset(Module):
    defined = transforms.ConcatenateWithOffset

    def forward(self, values: Any) -> Any:
        if not isinstance(values, list | tuple) or not _is_tensors(values[0]):
            return structure.from_arrays(self.definition.on_arrays(values))
        return structure.concatenated(list(values), self.definition.offsets_of(len(values)))


class Cross(Module):
    """Tensors of up to three columns are crossed in torch; more, and text, by the definition."""

    defined = transforms.Cross

    def forward(self, values: Any) -> Any:
        expect_columns(values)
        if not all(_is_tensors(column) for column in values):
            return structure.from_arrays(self.definition.on_arrays(values))
        ragged = [structure.is_pair(column) for column in values]
        flat = [column[0] if is_ragged else column for column, is_ragged in zip(values, ragged, strict=True)]
        is_alike = all(column.shape == flat[0].shape for column in flat) and len(set(ragged)) == 1
        if not is_alike or (ragged[0] and any(not torch.equal(column[1], values[0][1]) for column in values[1:])):
            raise DataError("Cross: expected columns of the same shape, whose rows have as many values each")
        if any(column.is_nested or column.layout != torch.strided for column in flat):
            raise DataError("Cross: expected dense columns, or pairs (values, splits)")
        return structure.mapped(lambda _: self.definition.compute(OPS, flat, {}), values[0])


def _is_tensors(column: Any) -> bool:
    return isinstance(column, torch.Tensor) or structure.is_pair(column)


def _like(values: torch.Tensor, number: float) -> torch.Tensor:
    return torch.tensor(number, dtype=values.dtype, device=values.device)
