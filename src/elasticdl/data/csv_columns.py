"""CSV lines as Arrow columns: text, or the types asked for; an empty field is null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import csv

from elasticdl.data.interface import Schema
from elasticdl.data.lines import BOM


def parse(data: bytes, delimiter: str, fields: int, places: Sequence[int], names: Sequence[str], schema: Schema) -> Any:
    """The fields at `places` of lines of `fields` fields, as columns of these names. ArrowInvalid where there are none.

    Each line must end with a newline. Agrees with Python's csv module in what a field is.
    """
    kinds = [schema.get(name, pa.string()) for name in names]
    if not data:
        empty = [pa.array([], type=kind) for kind in kinds]
        return pa.RecordBatch.from_arrays(empty, names=list(names))
    if data.startswith(BOM):
        data = BOM + data  # Arrow takes one away, and this one is part of a value
    chosen = [str(place) for place in places]
    table = csv.read_csv(
        pa.BufferReader(data),
        # One block, so that each column is one piece.
        csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=[str(n) for n in range(fields)]),
        csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in data),
        csv.ConvertOptions(
            include_columns=chosen,
            column_types=dict(zip(chosen, kinds, strict=True)),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )
    batches = table.to_batches()
    columns = batches[0].columns if batches else [pa.array([], type=kind) for kind in kinds]  # Arrow skips empty lines
    return pa.RecordBatch.from_arrays(columns, names=list(names))
