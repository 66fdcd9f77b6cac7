"""A batch as columns: what `map_columns` is given. Arrow holds them; no record becomes a Python object on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elasticdl.data.header import listed
from elasticdl.data.interface import ColumnarSource, Indices, Record, RecordSource, Schema
from elasticdl.errors import BadRecord, DataError, ModelError


def schema_of(given: Mapping[str, Any], columns: Sequence[str]) -> Schema:
    """The types asked for, from Arrow types or their names ("float32"). ModelError names what is none."""
    found = {}
    for name, kind in given.items():
        if columns and name not in columns:
            near = get_close_matches(name, columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "correct the schema or data.columns"
            raise ModelError(f"dataset.map_columns: schema: no column {name!r} among {listed(columns)}; {hint}")
        try:
            found[name] = pa.type_for_alias(kind) if isinstance(kind, str) else kind
        except ValueError as exc:
            raise ModelError(f"dataset.map_columns: schema: {name}: {kind!r} is no type of Arrow") from exc
        if not isinstance(found[name], pa.DataType):
            raise ModelError(
                f"dataset.map_columns: schema: {name}: expected a type such as pyarrow.float32() or its name, "
                f"got {kind!r}"
            )
    return found


def read(source: RecordSource, indices: Indices, schema: Schema) -> Any:
    """The records of these numbers as a RecordBatch; from single records where the source has no columns of its own."""
    if isinstance(source, ColumnarSource):
        return source.read_columns(indices, schema)
    batch = from_records(source.read(indices), source.name)
    return cast(source, batch, indices, schema)


def from_records(records: list[Record], name: str) -> Any:
    """Dicts of the same keys as a RecordBatch."""
    if records and not isinstance(records[0], dict):
        raise DataError(
            f"{name}: map_columns needs records with columns, that is dicts; these are "
            f"{type(records[0]).__name__}: use map or map_batches"
        )
    names = list(records[0]) if records else []
    arrays = []
    for column in names:
        try:
            arrays.append(pa.array([record[column] for record in records]))
        except (pa.ArrowException, KeyError, OverflowError) as exc:
            raise BadRecord(f"{name}: column {column!r} is not the same in all records: {exc}") from exc
    return pa.RecordBatch.from_arrays(arrays, names=names)


def cast(source: RecordSource, batch: Any, indices: Indices, schema: Schema) -> Any:
    """`batch`, the records `indices` of `source`, with the types asked for; a value that has none is named."""
    arrays = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        kind = schema.get(name, array.type)
        try:
            arrays.append(array if array.type == kind else pc.cast(array, kind))
        except (pa.ArrowException, NotImplementedError) as exc:
            refuse_value(source, name, array, indices, kind)
            raise DataError(f"{source.name}: column {name!r} cannot be read as {kind}: {exc}") from exc
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def refuse_value(source: RecordSource, name: str, array: Any, indices: Indices, kind: Any) -> None:
    """DataError for the first value that is no `kind`; nothing where each of them is one."""
    for number, value in zip(indices.tolist(), array, strict=True):
        try:
            pc.cast(value, kind)
        except (pa.ArrowException, NotImplementedError) as exc:
            raise BadRecord(
                f"{source.place(number)}, column {name!r}: expected {kind}, got {value.as_py()!r}; correct the value, "
                f"or leave the column out of the schema"
            ) from exc


def gather(tables: Sequence[Any], owners: Indices, rows: Indices) -> Any:
    """Row i of what comes is row rows[i] of tables[owners[i]]. Taken at once: a batch has rows of many tables."""
    starts = np.cumsum([0, *(table.num_rows for table in tables)])
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as exc:
        raise DataError(
            f"the columns of the files are of different types: {exc}; give their types in a schema"
        ) from exc
    return one_batch(table.take(pa.array(starts[owners] + rows)))


def one_batch(table: Any) -> Any:
    """A table of any number of chunks as one RecordBatch."""
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise DataError("a batch of more than 2 GiB of text in one column: make minibatch_size smaller")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
