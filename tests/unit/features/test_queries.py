"""SQL as text: what is quoted, what is scanned, and how each database spells it."""

from __future__ import annotations

import pytest

from elasticdl.errors import DataError
from elasticdl.features.sql import queries
from elasticdl.features.sql.dialects import Dialect, DuckDbDialect, MaxComputeDialect, PostgresDialect, RowDialect
from elasticdl.features.sql.interface import AnalysisOptions, ColumnForm, TableColumn

EVIL = 'a"; DROP TABLE clicks; --'
DIALECTS: list[Dialect] = [DuckDbDialect(), PostgresDialect(), MaxComputeDialect()]


@pytest.mark.parametrize(
    ("dialect", "identifier", "literal"),
    [
        (DuckDbDialect(), '"a""; DROP TABLE clicks; --"', "'it''s \\'"),
        (PostgresDialect(), '"a""; DROP TABLE clicks; --"', "E'it''s \\\\'"),
        (MaxComputeDialect(), '`a"; DROP TABLE clicks; --`', "'it\\'s \\\\'"),
    ],
)
def test_names_and_values_are_quoted(dialect: Dialect, identifier: str, literal: str) -> None:
    assert dialect.identifier(EVIL) == identifier
    assert dialect.literal("it's \\") == literal


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_name_cannot_end_its_quotes(dialect: Dialect) -> None:
    mark = "`" if isinstance(dialect, MaxComputeDialect) else '"'

    quoted = dialect.identifier(f"a{mark}b")

    assert quoted == f"{mark}a{mark}{mark}b{mark}"
    with pytest.raises(DataError, match="empty"):
        dialect.identifier("")


@pytest.mark.parametrize("dialect", [PostgresDialect(), MaxComputeDialect()], ids=lambda dialect: dialect.name)
def test_all_columns_come_of_one_scan(dialect: RowDialect) -> None:
    columns = [TableColumn("a"), TableColumn("b", ColumnForm.WHOLE), TableColumn(EVIL)]

    text = queries.count_query("shop.clicks", columns, AnalysisOptions(), dialect)

    assert text.count("shop.clicks") == 1
    assert dialect.identifier(EVIL) in text


def test_maxcompute_is_asked_in_its_own_words() -> None:
    columns = [TableColumn("label", ColumnForm.WHOLE), TableColumn("seen", ColumnForm.TRUTH)]

    text = queries.count_query("`shop`.`clicks`", columns, AnalysisOptions(), MaxComputeDialect())

    assert text == (
        "SELECT k, v, COUNT(*) AS n FROM (\n"
        "  SELECT k, v FROM `shop`.`clicks` LATERAL VIEW STACK(2,\n"
        "    0, CAST(`label` AS STRING),\n"
        "    1, CASE WHEN `seen` THEN '1' WHEN NOT `seen` THEN '0' END\n"
        "  ) cells AS k, v\n"
        ") all_cells GROUP BY k, v"
    )


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_the_summary_reads_the_counts_and_no_table(dialect: Dialect) -> None:
    text = queries.summary_query("counts", [TableColumn(EVIL)], AnalysisOptions(min_count=7, max_values=9), dialect)

    assert "n >= 7" in text
    assert "value_rank <= 9" in text
    assert EVIL not in text
    assert "MATERIALIZED" in text or isinstance(dialect, MaxComputeDialect)


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        (DuckDbDialect(), "USING SAMPLE 1.000000% (bernoulli, 3)"),
        (PostgresDialect(), "TABLESAMPLE BERNOULLI (1.000000) REPEATABLE (3)"),
        (MaxComputeDialect(), "WHERE RAND(3) < 0.01000000"),
    ],
)
def test_a_sample_is_taken_by_the_database(dialect: Dialect, words: str) -> None:
    assert words in queries.sampled_relation("t", AnalysisOptions(sample=0.01, seed=3), dialect)


def test_the_first_rows_are_chosen_before_anything_is_counted() -> None:
    assert (
        queries.sampled_relation("t", AnalysisOptions(max_rows=5), DuckDbDialect())
        == "(SELECT * FROM t LIMIT 5) first_rows"
    )
