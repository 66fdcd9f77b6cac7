"""The operations of transforms in torch, which has no tensors of text: text is transformed by NumpyOps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from elasticdl.errors import DataError
from elasticdl.features.torch import fingerprint
from elasticdl.features.transforms.numpy_ops import NUMPY_OPS
from elasticdl.features.transforms.ops import Ops, ValueKind

if TYPE_CHECKING:
    from elasticdl.features.transforms.categorical import IndexLookup
    from elasticdl.features.transforms.date_parts import DateParts
    from elasticdl.features.transforms.numeric import ToNumber

TORCH_TYPES = {"float32": torch.float32, "float64": torch.float64, "int32": torch.int32, "int64": torch.int64}


class TorchOps:
    def kind(self, values: Tensor) -> ValueKind:
        if not values.dtype.is_floating_point:
            return "whole"
        return "double" if values.dtype == torch.float64 else "single"

    def float32(self, numbers: Tensor) -> Tensor:
        return _flush_subnormals(numbers.to(torch.float32))

    def float64(self, numbers: Tensor) -> Tensor:
        exact = self.float32(numbers) if self.kind(numbers) == "single" else numbers
        return _flush_subnormals(exact.to(torch.float64))

    def int64(self, numbers: Tensor) -> Tensor:
        return numbers.to(torch.int64)

    def cast(self, numbers: Tensor, name: str) -> Tensor:
        return numbers.to(TORCH_TYPES[name])

    def where(self, condition: Tensor, if_true: Any, if_false: Any) -> Tensor:
        return torch.where(condition, if_true, if_false)

    def is_nan(self, floats: Tensor) -> Tensor:
        return torch.isnan(floats)

    def rint(self, floats: Tensor) -> Tensor:
        return torch.round(floats)

    def floor(self, floats: Tensor) -> Tensor:
        return torch.floor(floats)

    def divide(self, floats: Tensor, by: Tensor) -> Tensor:
        return floats / by

    def count_not_above(self, table: Tensor, numbers: Tensor) -> Tensor:
        return torch.searchsorted(table, numbers.contiguous(), right=True)

    def equals_text(self, texts: Tensor, text: str) -> Tensor:
        raise _no_text_error()

    def stack(self, columns: list[Tensor]) -> Tensor:
        return torch.stack(columns, -1)

    def hash_buckets(self, values: Tensor, bins: int) -> Tensor:
        return fingerprint.hash_buckets([_as_int64(values)], "", bins)

    def hash_joined_buckets(self, columns: list[Tensor], separator: str, bins: int) -> Tensor:
        numbers = [_as_int64(column) for column in columns]
        longest = len(columns) * (fingerprint.MAX_LETTERS + len(separator.encode())) - len(separator.encode())
        if longest <= fingerprint.MAX_HASHED_BYTES:
            return fingerprint.hash_buckets(numbers, separator, bins)
        if torch.compiler.is_compiling():
            max_columns = fingerprint.MAX_HASHED_BYTES // (fingerprint.MAX_LETTERS + 1)
            raise DataError(
                f"Cross: expected at most {max_columns} columns in a program to export. Received: {len(columns)}"
            )
        flat = [column.reshape(-1).cpu().numpy() for column in numbers]
        buckets = torch.from_numpy(NUMPY_OPS.hash_joined_buckets(flat, separator, bins))
        return buckets.to(columns[0].device).reshape(columns[0].shape)

    def lookup_index(self, values: Tensor, lookup: IndexLookup, tables: Mapping[str, Tensor]) -> Tensor:
        numbers = _as_int64(values)
        sorted_numbers = tables["numbers"]
        if not len(sorted_numbers):
            return torch.full_like(numbers, -1)
        nearest = torch.searchsorted(sorted_numbers, numbers.contiguous()).clamp(max=len(sorted_numbers) - 1)
        return torch.where(sorted_numbers[nearest] == numbers, tables["positions"][nearest], -1)

    def parse_numbers(self, texts: Tensor, to: ToNumber) -> Tensor:
        raise _no_text_error()

    def parse_dates(self, texts: Tensor, dates: DateParts) -> list[Tensor]:
        raise _no_text_error()


TORCH_OPS: Ops = TorchOps()


def _flush_subnormals(floats: Tensor) -> Tensor:
    return torch.where(floats.abs() <= torch.finfo(floats.dtype).tiny, 0.0, floats)


def _as_int64(values: Tensor) -> Tensor:
    if values.dtype.is_floating_point:
        raise DataError(
            f"expected text or whole numbers. Received: {values.dtype}; "
            "the text of a float is not unique: use ToNumber('int64', -1) or Discretization before"
        )
    return values.to(torch.int64)


def _no_text_error() -> TypeError:
    return TypeError("torch has no tensors of text")
