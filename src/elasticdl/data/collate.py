"""Collates a list of items into one batch: arrays with a new first dimension, in the same structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from elasticdl.errors import DataError

Stack: TypeAlias = Callable[[list[Any]], Any]
"""Stacks values of equal shape, at least one, into an array. An adapter passes one for tensors of its framework."""


def collate(items: Sequence[Any], stack: Stack, where: str = "the item") -> Any:
    """Collates `items`, at least one: dicts by key, tuples by index, everything else by `stack`."""
    first = items[0]
    if isinstance(first, dict):
        for item in items:
            if not isinstance(item, dict) or item.keys() != first.keys():
                raise DataError(
                    f"{where} has the keys {_describe_keys(first)} in one record and {_describe_keys(item)} in another"
                )
        return {key: collate([item[key] for item in items], stack, f"{where}[{key!r}]") for key in first}
    if isinstance(first, tuple):
        for item in items:
            if not isinstance(item, tuple) or len(item) != len(first):
                raise DataError(
                    f"{where} is a tuple of {len(first)} in one record and {_describe_keys(item)} in another"
                )
        return tuple(
            collate([item[index] for item in items], stack, f"{where}[{index}]") for index in range(len(first))
        )
    try:
        return stack(list(items))
    except (ValueError, TypeError, RuntimeError) as exc:
        shapes = sorted({str(np.shape(item)) for item in items})
        raise DataError(
            f"{where} cannot be stacked into a batch: {exc}; shapes in the batch: {', '.join(shapes[:4])}. "
            f"dataset_fn must give every record the same shape and type"
        ) from exc


def stack_arrays(values: list[Any]) -> Any:
    """Stacks numbers and arrays into one NumPy array, and text and bytes into an array of objects.

    NumPy values keep their type. Python floats become float32, which models expect, ints int64 and bools bool.
    """
    if isinstance(values[0], str | bytes) or values[0] is None:
        return object_array(values)
    if isinstance(values[0], np.ndarray | np.generic):
        return np.stack(values)
    array = np.array(values)  # raises ValueError for lists of unequal length
    if array.dtype == np.float64 and _is_python_float(values[0]):
        return array.astype(np.float32)
    if array.dtype.kind in "OUS":
        raise TypeError(f"no numbers: {type(values[0]).__name__}")
    return array


def object_array(values: Sequence[Any]) -> Any:
    """Returns a one-dimensional array of the values themselves."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def columns_from_records(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Converts a batch of dict records to a dict from column to array.

    Numbers of one type become an array of that type (Python floats stay float64, as they were stored), and lists of
    numbers of equal length an array of rows. Everything else, text included, becomes an array of objects.
    """
    return {column: _column_array([record[column] for record in records]) for column in records[0]}


def _column_array(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if kinds <= {int, float} or (len(kinds) == 1 and kinds <= {bool}):
        array = np.array(values)
    elif kinds <= {list, np.ndarray} or all(issubclass(kind, np.generic) for kind in kinds):
        try:
            array = np.array(values)
        except ValueError:
            return object_array(values)
    else:
        return object_array(values)
    return array if array.dtype.kind in "biuf" else object_array(values)


def count_records(batch: Any, where: str) -> int:
    """Returns the number of records in a batch. Raises DataError if its parts differ in it."""
    if isinstance(batch, dict | tuple):
        parts = batch.items() if isinstance(batch, dict) else enumerate(batch)
        sizes = {key: count_records(part, f"{where}[{key!r}]") for key, part in parts}
        if len(set(sizes.values())) != 1:
            raise DataError(f"{where}: its parts have different numbers of records: {sizes}")
        return next(iter(sizes.values()))
    try:
        return len(batch)
    except TypeError as exc:
        raise DataError(f"{where}: expected an array with one row for each record, got {type(batch).__name__}") from exc


def _is_python_float(value: Any) -> bool:
    while isinstance(value, list) and value:
        value = value[0]
    return type(value) in (float, int)


def _describe_keys(item: Any) -> str:
    return str(sorted(map(str, item))) if isinstance(item, dict) else type(item).__name__
