"""Streams CSV files as Arrow batches, decompressed where DuckDB cannot, with the partition columns of folders."""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyarrow import csv

from elasticdl.data.files import stored_file
from elasticdl.errors import DataError
from elasticdl.features.sql.input_files import CsvFiles, field_name, open_decompressed
from elasticdl.features.sql.interface import TableColumn

_BLOCK_BYTES = 4 << 20


def partition_columns(paths: tuple[str, ...]) -> dict[str, None]:
    """Returns the names of the columns that folders called `name=value` stand for; all paths have the same."""
    named = [tuple(re.findall(r"([^/=]+)=[^/]*/", path)) for path in paths]
    if any(names != named[0] for names in named):
        raise DataError(f"{paths[0]}: folders of the form name=value are not the same for all files")
    return dict.fromkeys(named[0])


def csv_table_columns(source: CsvFiles) -> list[TableColumn]:
    """Returns the selected columns, then those of the folders."""
    columns = [
        TableColumn(name, stored_name=field_name(source.columns.index(name)))
        for name in source.selected or source.columns
    ]
    return columns + [TableColumn(name) for name in partition_columns(source.paths)]


def open_csv_stream(source: CsvFiles, report_progress: Callable[[float], None]) -> Any:
    """Opens a reader of batches whose columns are all text. It reports the fraction of bytes that it has read."""
    folders = partition_columns(source.paths)
    fields = [field_name(index) for index in range(len(source.columns))]
    schema = pa.schema([(name, pa.string()) for name in (*fields, *folders)])
    total = sum(stored_file.find_file(path).size for path in source.paths)

    def batches() -> Iterator[Any]:
        before = 0
        for path in source.paths:
            values = dict(re.findall(r"([^/=]+)=([^/]*)/", path))
            for batch, done in _read_batches(source, path):
                report_progress((before + done) / total)
                arrays = [*batch.columns, *(pa.repeat(pa.scalar(values[name]), len(batch)) for name in folders)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            before += stored_file.find_file(path).size

    return pa.RecordBatchReader.from_batches(schema, batches())


def _read_batches(source: CsvFiles, path: str) -> Iterator[tuple[Any, int]]:
    names = [field_name(index) for index in range(len(source.columns))]
    try:
        with stored_file.find_file(path).open() as raw, open_decompressed(path, raw) as text:
            reader = csv.open_csv(
                text,
                csv.ReadOptions(
                    column_names=names,
                    skip_rows=int(source.has_header),
                    block_size=_BLOCK_BYTES,
                    use_threads=False,
                ),
                csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True),
                csv.ConvertOptions(
                    column_types={name: pa.string() for name in names},
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
            for batch in reader:
                yield batch, raw.tell()
    except (pa.ArrowInvalid, lzma.LZMAError, EOFError, OSError) as exc:
        raise DataError(f"{path}: {exc}") from exc
