"""Statistics of tables of a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from psycopg import sql

from elasticdl.errors import DataError
from elasticdl.features import analysis
from elasticdl.features.sql.interface import AnalysisOptions
from elasticdl.features.statistics import ColumnKind
from tests.postgres import PASSWORD, USER, server
from tests.properties import examples
from tests.unit.features import oracle, tables

QUESTION = AnalysisOptions(min_count=1, quantile_steps=20, max_values=5)


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with server() as postgres_server, pytest.MonkeyPatch.context() as environ:
        environ.setenv("PGPASSWORD", PASSWORD)
        yield str(postgres_server.directory)


def uri(host: str, table: str = "clicks") -> str:
    return f"postgresql://{USER}@/postgres?host={host}&table={table}"


def put(host: str, names: list[str], declared: list[str], rows: list[tuple[Any, ...]], table: str = "clicks") -> None:
    with psycopg.connect(host=host, user=USER, dbname="postgres") as connection:
        fields = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(d)) for n, d in zip(names, declared, strict=True)]
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(sql.Identifier(table)))
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(table), sql.SQL(", ").join(fields)))
        with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(table))) as copy:
            for row in rows:
                copy.write_row(row)


@settings(max_examples=examples(15))
@given(columns=tables.columns())
def test_postgresql_agrees_with_numpy(host: str, columns: list[list[str | None]]) -> None:
    names = tables.NAMES[: len(columns)]
    put(host, names, ["text"] * len(names), list(zip(*columns, strict=True)))

    statistics = analysis.analyze(analysis.AnalysisSource(uri(host)), QUESTION)

    assert list(statistics.columns) == names
    assert statistics.rows == len(columns[0])
    for name, values in zip(names, columns, strict=True):
        oracle.close(statistics.column(name), oracle.expected(values, QUESTION))


def test_columns_with_types_have_their_kinds(host: str) -> None:
    names = ["whole", "real", "price", "seen", "at", "day", "tags", "empty"]
    declared = ["bigint", "double precision", "numeric(10,2)", "boolean", "timestamptz", "date", "text[]", "real"]
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    rows = [
        (1, 1e300, "1.50", True, noon, date(2026, 1, 1), ["a", "b"], None),
        (3, float("inf"), "2.50", False, noon, date(2026, 1, 3), ["a", "c"], None),
        (None, float("nan"), None, None, None, None, None, None),
    ]
    put(host, names, declared, rows)

    columns = analysis.analyze(analysis.AnalysisSource(uri(host)), QUESTION).columns

    kinds = [ColumnKind.NUMBER] * 4 + [ColumnKind.DATE] * 2 + [ColumnKind.TEXT, ColumnKind.NUMBER]
    assert [column.kind for column in columns.values()] == kinds
    assert (columns["whole"].is_integer, columns["whole"].mean, columns["whole"].missing) == (True, 2.0, 1)
    assert (columns["real"].maximum, columns["real"].missing) == (1e300, 2)
    assert (columns["price"].minimum, columns["price"].maximum) == (1.5, 2.5)
    assert (columns["seen"].minimum, columns["seen"].maximum) == (0.0, 1.0)
    assert columns["at"].minimum == noon.timestamp()
    assert (columns["tags"].separator, columns["tags"].values) == ("|", ("a", "b", "c"))
    assert columns["empty"].missing == 3


def test_a_sample_of_a_table_and_of_a_view_has_about_the_requested_size(host: str) -> None:
    put(host, ["x"], ["int"], [(value,) for value in range(4000)])
    with psycopg.connect(host=host, user=USER, dbname="postgres") as connection:
        connection.execute("CREATE VIEW seen AS SELECT * FROM clicks")
    question = AnalysisOptions(sample=0.25)

    table = analysis.analyze(analysis.AnalysisSource(uri(host)), question)
    view = analysis.analyze(analysis.AnalysisSource(uri(host, "seen")), question)

    # Five standard deviations of a binomial count.
    assert abs(table.rows - 1000) < 140
    assert abs(view.rows - 1000) < 140
    assert table.sample_fraction == 0.25
    assert not table.column("x").is_distinct_exact


def test_the_first_rows_are_those_of_the_key_as_in_training(host: str) -> None:
    put(host, ["id", "x"], ["int PRIMARY KEY", "int"], [(9 - value, value) for value in range(10)])
    first = AnalysisOptions(max_rows=4)

    assert analysis.analyze(analysis.AnalysisSource(uri(host)), first).column("x").minimum == 6  # stored last

    put(host, ["x"], ["int"], [(value,) for value in range(10)])
    assert analysis.analyze(analysis.AnalysisSource(uri(host)), first).rows == 4  # no key: any four


def test_nothing_is_written_and_the_source_has_no_user(host: str) -> None:
    put(host, ["x"], ["int"], [(1,)])

    statistics = analysis.analyze(analysis.AnalysisSource(uri(host)), QUESTION)

    assert f"{USER}@" not in statistics.source
    with psycopg.connect(host=host, user=USER, dbname="postgres") as connection:
        tables_there = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert tables_there == [("clicks",)]


def test_a_missing_table_and_a_missing_server_are_reported(host: str, tmp_path: Any) -> None:
    with pytest.raises(DataError, match="does not exist"):
        analysis.analyze(analysis.AnalysisSource(uri(host, "clikcs")), QUESTION)
    with pytest.raises(DataError, match="connection"):
        analysis.analyze(analysis.AnalysisSource(uri(str(tmp_path))), QUESTION)
