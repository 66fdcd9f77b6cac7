"""Statistics by DuckDB."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from pyarrow import parquet

from elasticdl.features import analysis
from elasticdl.features.sql.interface import AnalysisOptions
from tests.properties import examples
from tests.unit.features import oracle, tables


@settings(max_examples=examples(15))
@given(tables.columns())
def test_duckdb_agrees_with_numpy(columns: list[list[str | None]]) -> None:
    question = AnalysisOptions(min_count=1, quantile_steps=20, max_values=5)
    names = tables.NAMES[: len(columns)]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "clicks.parquet"
        arrays = [pa.array(values, pa.string()) for values in columns]
        parquet.write_table(pa.Table.from_arrays(arrays, names=names), path)
        statistics = analysis.analyze(analysis.AnalysisSource(str(path)), question)

    assert list(statistics.columns) == names
    assert statistics.rows == len(columns[0])
    for name, values in zip(names, columns, strict=True):
        oracle.close(statistics.column(name), oracle.expected(values, question))
