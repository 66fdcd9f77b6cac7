"""From a list of items to one batch: arrays with one more dimension in front, in the same structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from elasticdl.errors import DataError

Stack: TypeAlias = Callable[[list[Any]], Any]
"""Equal-shaped values, at least one, to one array. An adapter replaces it to stack tensors of its framework."""


def collate(items: Sequence[Any], stack: Stack, where: str = "the item") -> Any:
    """Stack `items`, at least one: dicts by key and tuples by place, all else by `stack`."""
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
            collate([item[place] for item in items], stack, f"{where}[{place}]") for place in range(len(first))
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
    """Numbers and arrays to one numpy array; text and bytes to an array of objects.

    numpy values keep their type. Python floats become float32, as models want them, ints int64, bools bool.
    """
    if isinstance(values[0], str | bytes) or values[0] is None:
        return object_array(values)
    if isinstance(values[0], np.ndarray | np.generic):
        return np.stack(values)
    array = np.array(values)  # of unequal lists: ValueError
    if array.dtype == np.float64 and _is_python_float(values[0]):
        return array.astype(np.float32)
    if array.dtype.kind in "OUS":
        raise TypeError(f"no numbers: {type(values[0]).__name__}")
    return array


def object_array(values: Sequence[Any]) -> Any:
    """A one-dimensional array of the values themselves."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def columns_from_records(records: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch of dict records as a dict from column to array.

    Numbers of one type become an array of it (Python floats here stay float64, as they were stored), lists of
    numbers of equal length an array of rows; all else, text included, an array of objects.
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
    """How many records a batch is of; DataError where its parts do not agree."""
    if isinstance(batch, dict | tuple):
        parts = batch.items() if isinstance(batch, dict) else enumerate(batch)
        sizes = {key: count_records(part, f"{where}[{key!r}]") for key, part in parts}
        if len(set(sizes.values())) != 1:
            raise DataError(f"{where}: its parts are of different numbers of records: {sizes}")
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
