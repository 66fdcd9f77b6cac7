"""SQL as text: what is quoted, what is scanned, and how each database spells it."""

from __future__ import annotations

import pytest

from elasticdl.errors import DataError
from elasticdl.features.sql import generate
from elasticdl.features.sql.dialect import Dialect, DuckDb, MaxCompute, Postgres, RowDialect
from elasticdl.features.sql.interface import Column, Form, Question

EVIL = 'a"; DROP TABLE clicks; --'
DIALECTS: list[Dialect] = [DuckDb(), Postgres(), MaxCompute()]


@pytest.mark.parametrize(
    ("dialect", "identifier", "literal"),
    [
        (DuckDb(), '"a""; DROP TABLE clicks; --"', "'it''s \\'"),
        (Postgres(), '"a""; DROP TABLE clicks; --"', "E'it''s \\\\'"),
        (MaxCompute(), '`a"; DROP TABLE clicks; --`', "'it\\'s \\\\'"),
    ],
)
def test_names_and_values_are_quoted(dialect: Dialect, identifier: str, literal: str) -> None:
    assert dialect.identifier(EVIL) == identifier
    assert dialect.literal("it's \\") == literal


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_name_cannot_end_its_quotes(dialect: Dialect) -> None:
    mark = "`" if isinstance(dialect, MaxCompute) else '"'

    quoted = dialect.identifier(f"a{mark}b")

    assert quoted == f"{mark}a{mark}{mark}b{mark}"
    with pytest.raises(DataError, match="empty"):
        dialect.identifier("")


@pytest.mark.parametrize("dialect", [Postgres(), MaxCompute()], ids=lambda dialect: dialect.name)
def test_all_columns_come_of_one_scan(dialect: RowDialect) -> None:
    columns = [Column("a"), Column("b", Form.WHOLE), Column(EVIL)]

    text = generate.counted("shop.clicks", columns, Question(), dialect)

    assert text.count("shop.clicks") == 1
    assert dialect.identifier(EVIL) in text


def test_maxcompute_is_asked_in_its_own_words() -> None:
    columns = [Column("label", Form.WHOLE), Column("seen", Form.TRUTH)]

    text = generate.counted("`shop`.`clicks`", columns, Question(), MaxCompute())

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
    text = generate.summary("counts", [Column(EVIL)], Question(least_count=7, most_values=9), dialect)

    assert "n >= 7" in text
    assert "place <= 9" in text
    assert EVIL not in text
    assert "MATERIALIZED" in text or isinstance(dialect, MaxCompute)


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        (DuckDb(), "USING SAMPLE 1.000000% (bernoulli, 3)"),
        (Postgres(), "TABLESAMPLE BERNOULLI (1.000000) REPEATABLE (3)"),
        (MaxCompute(), "WHERE RAND(3) < 0.01000000"),
    ],
)
def test_a_sample_is_taken_by_the_database(dialect: Dialect, words: str) -> None:
    assert words in generate.chosen("t", Question(sample=0.01, seed=3), dialect)


def test_the_first_rows_are_chosen_before_anything_is_counted() -> None:
    assert generate.chosen("t", Question(most_rows=5), DuckDb()) == "(SELECT * FROM t LIMIT 5) first_rows"
