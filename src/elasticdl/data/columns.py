"""Batches as Arrow columns: the input of `map_columns`. Imports pyarrow, so import it only where columns are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from elasticdl.data.column_names import format_names
from elasticdl.data.interface import ColumnarSource, Indices, Record, RecordSource, Schema
from elasticdl.data.readers.lines import BOM
from elasticdl.errors import BadRecord, DataError, ModelError


def parse_schema(schema: Mapping[str, Any], columns: Sequence[str]) -> Schema:
    """Returns the Arrow types of a schema of types or their names ("float32"). Raises ModelError for others."""
    types = {}
    for name, kind in schema.items():
        if columns and name not in columns:
            near = get_close_matches(name, columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "correct the schema or data.columns"
            raise ModelError(f"dataset.map_columns: schema: no column {name!r} among {format_names(columns)}; {hint}")
        try:
            types[name] = pa.type_for_alias(kind) if isinstance(kind, str) else kind
        except ValueError as exc:
            raise ModelError(f"dataset.map_columns: schema: {name}: {kind!r} is not an Arrow type") from exc
        if not isinstance(types[name], pa.DataType):
            raise ModelError(
                f"dataset.map_columns: schema: {name}: expected a type such as pyarrow.float32() or its name, "
                f"got {kind!r}"
            )
    return types


def read_columns(source: RecordSource, indices: Indices, schema: Schema) -> Any:
    """Returns records as a RecordBatch, made from single records if the source does not read columns."""
    if isinstance(source, ColumnarSource):
        return source.read_columns(indices, schema)
    batch = batch_from_records(source.read(indices), source.name)
    return cast_columns(source, batch, indices, schema)


def batch_from_records(records: list[Record], name: str) -> Any:
    """Converts dicts with the same keys to a RecordBatch."""
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


def cast_columns(source: RecordSource, batch: Any, indices: Indices, schema: Schema) -> Any:
    """Casts `batch`, the records `indices` of `source`, to the schema. An error names the value that cannot be cast."""
    arrays = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        kind = schema.get(name, array.type)
        try:
            arrays.append(array if array.type == kind else pc.cast(array, kind))
        except (pa.ArrowException, NotImplementedError) as exc:
            check_values(source, name, array, indices, kind)
            raise DataError(f"{source.name}: column {name!r} cannot be read as {kind}: {exc}") from exc
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def check_values(source: RecordSource, name: str, array: Any, indices: Indices, kind: Any) -> None:
    """Raises BadRecord for the first value that cannot be cast to `kind`, if there is one."""
    for number, value in zip(indices.tolist(), array, strict=True):
        try:
            pc.cast(value, kind)
        except (pa.ArrowException, NotImplementedError) as exc:
            raise BadRecord(
                f"{source.locate(number)}, column {name!r}: expected {kind}, got {value.as_py()!r}; correct the value, "
                f"or leave the column out of the schema"
            ) from exc


def gather_rows(tables: Sequence[Any], owners: Indices, rows: Indices) -> Any:
    """Returns a batch whose row i is row rows[i] of tables[owners[i]]."""
    starts = np.cumsum([0, *(table.num_rows for table in tables)])
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as exc:
        raise DataError(
            f"the columns of the files are of different types: {exc}; give their types in a schema"
        ) from exc
    return to_single_batch(table.take(pa.array(starts[owners] + rows)))


def to_single_batch(table: Any) -> Any:
    """Converts a table of any number of chunks to one RecordBatch."""
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise DataError("a batch of more than 2 GiB of text in one column: make minibatch_size smaller")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def parse_csv(
    data: bytes, delimiter: str, fields: int, indices: Sequence[int], names: Sequence[str], schema: Schema
) -> Any:
    """Returns the fields at `indices` of lines with `fields` fields as columns called `names`.

    Each line must end with a newline. Fields are split as by Python's csv module. Raises ArrowInvalid for other lines.
    """
    kinds = [schema.get(name, pa.string()) for name in names]
    if not data:
        empty = [pa.array([], type=kind) for kind in kinds]
        return pa.RecordBatch.from_arrays(empty, names=list(names))
    if data.startswith(BOM):
        data = BOM + data  # Arrow removes one, and this one is part of a value
    selected = [str(index) for index in indices]
    table = csv.read_csv(
        pa.BufferReader(data),
        # One block, so that each column is one piece.
        csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=[str(n) for n in range(fields)]),
        csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in data),
        csv.ConvertOptions(
            include_columns=selected,
            column_types=dict(zip(selected, kinds, strict=True)),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )
    batches = table.to_batches()
    columns = batches[0].columns if batches else [pa.array([], type=kind) for kind in kinds]  # Arrow skips empty lines
    return pa.RecordBatch.from_arrays(columns, names=list(names))
