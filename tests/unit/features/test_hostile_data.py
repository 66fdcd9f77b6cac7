"""Data somebody else made: a database, a file and names of columns that try to reach what they should not."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from elasticdl.errors import DataError
from elasticdl.features.analysis import AnalysisSource, analyze
from elasticdl.features.sql.interface import AnalysisOptions
from tests.properties import examples

EVERY = AnalysisOptions(min_count=1)
SECRET = "the-key-of-somebody"
# Text that would be SQL if it were pasted anywhere.
HOSTILE = (
    """a", (SELECT content FROM read_text('SECRET')) AS "b""",
    """a'); COPY (SELECT 1) TO 'WRITTEN'; --""",
    """'; ATTACH 'WRITTEN' AS x; --""",
    '"',
    "'",
    "a]b[c",
    "{{x}}",
    "$1",
    "\\",
)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.txt"
    path.write_text(SECRET)
    return path


@pytest.mark.parametrize(
    "view",
    [
        "SELECT content AS city, 1 AS label FROM read_text('SECRET')",
        "SELECT content AS city, 1 AS label FROM hidden('SECRET')",  # a macro of the database
        "SELECT column0 AS city, 1 AS label FROM read_csv('SECRET', header = false)",
        "SELECT filename AS city, 1 AS label FROM glob('DIRECTORY/*') t(filename)",
    ],
)
def test_a_view_of_a_foreign_database_reaches_no_other_file(tmp_path: Path, secret: Path, view: str) -> None:
    database = tmp_path / "clicks.db"
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE MACRO hidden(path) AS TABLE SELECT content FROM read_text(path)")
        connection.execute("CREATE TABLE plain AS SELECT 'Rome' AS city, 1 AS label")
        named = view.replace("SECRET", str(secret)).replace("DIRECTORY", str(tmp_path))
        connection.execute(f"CREATE VIEW clicks AS {named}")

    with pytest.raises(DataError) as raised:
        analyze(AnalysisSource(f"duckdb://{database}?table=clicks"), EVERY)

    assert SECRET not in str(raised.value)


def test_a_view_of_its_own_tables_is_analyzed(tmp_path: Path) -> None:
    database = tmp_path / "clicks.db"
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE plain AS SELECT 'Rome' AS city UNION ALL SELECT 'Oslo'")
        connection.execute("CREATE VIEW clicks AS SELECT city FROM plain")

    assert analyze(AnalysisSource(f"duckdb://{database}?table=clicks"), EVERY).rows == 2


def test_a_file_of_another_database_loads_no_extension(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "clicks.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE clicks (city TEXT)")
    connection.close()

    with pytest.raises(DataError):
        analyze(AnalysisSource(f"duckdb://{path}?table=clicks"), EVERY)


@pytest.mark.parametrize("kind", ["csv", "csv.bz2", "parquet", "db"])
@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_values_are_never_sql(tmp_path: Path, secret: Path, text: str, kind: str) -> None:
    written = tmp_path / "written"
    word = text.replace("SECRET", str(secret)).replace("WRITTEN", str(written))

    statistics = analyze(AnalysisSource(make_source(tmp_path, kind, word)), EVERY)

    assert word in statistics.columns
    assert list(statistics.column(word).values) == [word]
    assert not written.exists()


@settings(max_examples=examples(25))
@given(
    letters=st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="|"), max_size=20)
)
def test_any_text_may_be_a_name_and_a_value(letters: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory, word = tmp_path_factory.mktemp("any"), f"x{letters}"  # no number, no list

    statistics = analyze(AnalysisSource(make_source(directory, "parquet", word)), EVERY)

    assert list(statistics.column(word).values) == [word]


def test_a_path_with_quotes_and_brackets_is_one_file(tmp_path: Path) -> None:
    directory = tmp_path / 'it\'s [a], "folder"'
    directory.mkdir()

    assert analyze(AnalysisSource(make_source(directory, "db", "x")), EVERY).rows == 2


def make_source(directory: Path, kind: str, word: str) -> str:
    """A source whose one column of text is called `word` and holds it."""
    columns = {"number": ["1", "2"], word: [word, None]}
    path = directory / f"clicks.{kind}"
    if kind == "parquet":
        parquet.write_table(pa.table(columns), path)
    elif kind == "db":
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        with duckdb.connect(str(path)) as connection:
            connection.register("given", pa.table(columns))
            connection.execute(f"CREATE TABLE clicks AS SELECT {names} FROM given")
        return f"duckdb://{path}?table=clicks"
    else:
        import bz2
        import csv
        import io

        text = io.StringIO()
        csv.writer(text).writerows([list(columns), *zip(*columns.values(), strict=True)])
        path.write_bytes(bz2.compress(text.getvalue().encode()) if kind == "csv.bz2" else text.getvalue().encode())
    return str(path)
