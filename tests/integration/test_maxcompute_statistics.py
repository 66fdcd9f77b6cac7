"""Statistics of MaxCompute: the real client against a local stand-in, since no project can be reached from here."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from elasticdl.data.tables.table_uri import MaxComputeTable
from elasticdl.errors import DataError
from elasticdl.features import analysis
from elasticdl.features.sql import summary
from elasticdl.features.sql.interface import AnalysisOptions, ColumnVocabulary
from elasticdl.features.sql.maxcompute_engine import MaxComputeEngine
from tests.integration.maxcompute_server import StandIn, serve

odps = pytest.importorskip("odps")

TABLE = MaxComputeTable("shop", "clicks", "ds=20260101")
COLUMNS = {"label": "bigint", "city": "string"}


def engine(endpoint: str) -> MaxComputeEngine:
    client = odps.ODPS("id", "swordfish", project="shop", endpoint=endpoint)
    # The tunnel has a protocol of its own, which the stand-in does not speak.
    return MaxComputeEngine(TABLE, client, use_tunnel=False)


def test_the_client_counts_once_aggregates_and_cleans_up(tmp_path: Path) -> None:
    question = AnalysisOptions(min_count=1)
    path = tmp_path / "clicks.parquet"
    columns = {"label": ["0", "1", "0", "1"], "city": ["Rome", "Oslo", "Rome", None]}
    parquet.write_table(pa.table(columns), path)
    with analysis.open_engine(analysis.AnalysisSource(str(path))) as duckdb:
        same = duckdb.columns()
        rows = list(duckdb.summarize(same, question, analysis.ignore_progress))
    stand_in = StandIn(COLUMNS, [row for row in rows if not isinstance(row, ColumnVocabulary)])

    with serve(stand_in) as endpoint:
        opened = engine(endpoint)
        computed = summary.build_statistics(
            opened.summarize(opened.columns(), question, analysis.ignore_progress), opened.columns(), question
        )

    assert computed == summary.build_statistics(rows, same, question)
    counting, summing, dropping = stand_in.statements
    assert counting.startswith("CREATE TABLE `elasticdl_counts_")
    assert counting.count("`shop`.`clicks`") == 1
    assert "WHERE `ds` = '20260101'" in counting
    assert "`shop`.`clicks`" not in summing
    assert dropping.startswith("DROP TABLE IF EXISTS `elasticdl_counts_")
    assert all(signed.startswith("ODPS id:") for signed in stand_in.signed)


def test_a_failed_statement_is_reported_and_its_table_dropped() -> None:
    stand_in = StandIn(COLUMNS, [], fails="ODPS-0130131: Table not found")

    with serve(stand_in) as endpoint:
        opened = engine(endpoint)
        columns = opened.columns()
        with pytest.raises(DataError, match="Table not found") as raised:
            list(opened.summarize(columns, AnalysisOptions(), analysis.ignore_progress))

    assert "swordfish" not in str(raised.value)


def test_missing_credentials_are_reported_with_the_variables_to_set() -> None:
    with pytest.raises(DataError, match="set ODPS_ACCESS_ID, ODPS_ACCESS_KEY"):
        analysis.analyze(analysis.AnalysisSource("maxcompute://shop/clicks", environ={}), AnalysisOptions())
