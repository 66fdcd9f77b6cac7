"""CSV that DuckDB does not decompress itself: blocks of it, decompressed here, as Arrow batches."""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyarrow import csv

from elasticdl.data import files
from elasticdl.errors import DataError
from elasticdl.features.sql.files import CsvFiles, decompressed, field_name
from elasticdl.features.sql.interface import Column

_BLOCK_BYTES = 4 << 20


def partitions(paths: tuple[str, ...]) -> dict[str, None]:
    """Names of the columns that folders called `name=value` give, the same for all paths."""
    named = [tuple(re.findall(r"([^/=]+)=[^/]*/", path)) for path in paths]
    if any(names != named[0] for names in named):
        raise DataError(f"{paths[0]}: folders of the form name=value are not the same for all files")
    return dict.fromkeys(named[0])


def columns(source: CsvFiles) -> list[Column]:
    """Those that are wanted, and those that folders give."""
    found = [Column(name, stored=field_name(source.columns.index(name))) for name in source.wanted or source.columns]
    return found + [Column(name) for name in partitions(source.paths)]


def open_stream(source: CsvFiles, told: Callable[[float], None]) -> Any:
    """A reader of batches, every column text; `told` hears which part of all bytes has been read."""
    folders = partitions(source.paths)
    fields = [field_name(place) for place in range(len(source.columns))]
    schema = pa.schema([(name, pa.string()) for name in (*fields, *folders)])
    total = sum(files.find(path).size for path in source.paths)

    def batches() -> Iterator[Any]:
        before = 0
        for path in source.paths:
            values = dict(re.findall(r"([^/=]+)=([^/]*)/", path))
            for batch, done in _batches(source, path):
                told((before + done) / total)
                arrays = [*batch.columns, *(pa.repeat(pa.scalar(values[name]), len(batch)) for name in folders)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            before += files.find(path).size

    return pa.RecordBatchReader.from_batches(schema, batches())


def _batches(source: CsvFiles, path: str) -> Iterator[tuple[Any, int]]:
    names = [field_name(place) for place in range(len(source.columns))]
    try:
        with files.find(path).open() as raw, decompressed(path, raw) as text:
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
