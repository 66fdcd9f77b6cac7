"""Files in and statistics out; and what is said about files that are not as they should be."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from elasticdl.errors import DataError
from elasticdl.features.analysis import AnalysisSource, analyze
from elasticdl.features.sql import input_files
from elasticdl.features.sql.interface import AnalysisOptions
from elasticdl.features.statistics import ColumnKind, Statistics

CLICKS = "label,price,city\n0,1.5,Rome\n1,2.5,Oslo\n0,,Rome\n1,4,\n"
EVERY = AnalysisOptions(min_count=1)


def put(directory: Path, text: str, name: str = "clicks.csv") -> str:
    (directory / name).write_text(text)
    return str(directory / name)


def of(uri: str, label: str | None = "label", **options: object) -> Statistics:
    return analyze(AnalysisSource(uri, **options), EVERY, label)  # type: ignore[arg-type]


def is_right(statistics: Statistics) -> bool:
    price, city = statistics.column("price"), statistics.column("city")
    return (
        (statistics.rows, price.kind, price.missing, price.minimum, price.maximum)
        == (4, ColumnKind.NUMBER, 1, 1.5, 4.0)
        and (city.kind, city.missing, city.values, city.counts) == (ColumnKind.TEXT, 1, ("Rome", "Oslo"), (2, 1))
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ending", "packed"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)],
)
def test_a_file_may_be_compressed(tmp_path: Path, ending: str, packed: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"clicks.csv{ending}"
    path.write_bytes(packed(CLICKS.encode()))

    assert is_right(of(str(path)))


def test_a_folder_with_partitions_gives_a_column_for_each(tmp_path: Path) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        (tmp_path / f"day={day}").mkdir()
        put(tmp_path / f"day={day}", CLICKS, "part.csv")

    statistics = of(str(tmp_path))

    assert statistics.rows == 8
    assert (statistics.column("day").kind, statistics.column("day").distinct) == (ColumnKind.DATE, 2)


def test_partitions_of_streamed_files_are_columns_too(tmp_path: Path) -> None:
    for day in ("a", "b"):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "part.csv.xz").write_bytes(lzma.compress(CLICKS.encode()))

    assert of(str(tmp_path)).column("day").values == ("a", "b")


def test_parquet_and_a_duckdb_table_give_the_same(tmp_path: Path) -> None:
    columns = {"label": [0, 1, 0, 1], "price": [1.5, 2.5, None, 4.0], "city": ["Rome", "Oslo", "Rome", None]}
    parquet.write_table(pa.table(columns), tmp_path / "clicks.parquet")
    with duckdb.connect(str(tmp_path / "clicks.db")) as connection:
        connection.execute("CREATE TABLE clicks AS SELECT * FROM read_parquet(?)", [str(tmp_path / "clicks.parquet")])

    assert is_right(of(str(tmp_path / "clicks.parquet")))
    assert is_right(of(f"duckdb://{tmp_path}/clicks.db?table=clicks"))


def test_a_file_without_a_header_takes_the_names_given(tmp_path: Path) -> None:
    path = put(tmp_path, "0\t1\tab\n1\t2\tcd\n", "train.tsv")

    statistics = of(path, columns=("label", "I1..I2"))

    assert list(statistics.columns) == ["label", "I1", "I2"]
    assert statistics.rows == 2


def test_ranges_of_names_are_written_out() -> None:
    assert input_files.expand_column_names(["label", "I1..I3", "a..b", "C9..C10"]) == (
        "label",
        "I1",
        "I2",
        "I3",
        "a..b",
        "C9",
        "C10",
    )


def test_names_that_differ_in_case_and_names_with_quotes_are_kept_apart(tmp_path: Path) -> None:
    statistics = of(put(tmp_path, 'label,a,A,"x""; DROP TABLE staged; --"\n0,1,2,3\n1,1,2,3\n'))

    assert list(statistics.columns) == ["label", "a", "A", 'x"; DROP TABLE staged; --']
    assert (statistics.column("a").mean, statistics.column("A").mean) == (1.0, 2.0)


def test_parquet_names_that_differ_in_case_are_refused(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": [0, 1], "A": [2, 3]}), tmp_path / "clicks.parquet")

    with pytest.raises(DataError, match="differ only in case"):
        of(str(tmp_path / "clicks.parquet"), None)


def test_mixed_values_are_counted_shown_and_make_the_column_text(tmp_path: Path) -> None:
    rows = "\n".join(f"{n % 2},{n}" for n in range(10))
    column = of(put(tmp_path, f"label,price\n{rows}\n0,n/a\n1,n/a\n")).column("price")

    assert (column.kind, column.exceptions, column.exception_examples) == (ColumnKind.TEXT, 2, ("n/a",))
    assert column.mean is None


def test_empty_and_constant_columns_are_analyzed(tmp_path: Path) -> None:
    statistics = of(put(tmp_path, "label,none,one\n0,,x\n1,,x\n"))

    assert (statistics.column("none").missing, statistics.column("none").distinct) == (2, 0)
    assert (statistics.column("one").missing, statistics.column("one").distinct) == (0, 1)


def test_a_vocabulary_is_cut_at_the_most_values(tmp_path: Path) -> None:
    rows = "\n".join(f"{n % 2},v{n % 50:02}" for n in range(200))

    column = analyze(
        AnalysisSource(put(tmp_path, f"label,c\n{rows}\n")), AnalysisOptions(max_values=5), "label"
    ).column("c")

    assert column.values == ("v00", "v01", "v02", "v03", "v04")
    assert column.is_truncated
    assert column.distinct == 50


def test_max_rows_analyzes_the_first_rows_only(tmp_path: Path) -> None:
    rows = "\n".join(f"{n % 2},{n}" for n in range(500))

    statistics = analyze(AnalysisSource(put(tmp_path, f"label,x\n{rows}\n")), AnalysisOptions(max_rows=100), "label")

    assert (statistics.rows, statistics.column("x").distinct) == (100, 100)


def test_nothing_temporary_is_left(tmp_path: Path) -> None:
    (tmp_path / "temp").mkdir()

    of(put(tmp_path, CLICKS), temporary=tmp_path / "temp")

    assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("label,x\n0,1\n2,1\n", "expected 0 and 1, received"),
        ("label,x\nyes,1\nno,1\n", "expected 0 and 1, received values such as 'no', 'yes'"),
        ("label,x\n0,1\n,1\n1,2\n", "missing in 1 rows"),
        ("label,x\n1,1\n1,2\n", "1 in every row"),
        ("Label,x\n0,1\n", "no column 'label' for the label; did you mean 'Label'"),
        ("label,x,x\n0,1,1\n", "twice"),
        ("label;x;y\n0;1;2\n", "set --delimiter ';'"),
        ("0,1,2\n1,1,2\n", "name"),
        ("0,,ab\n1,,cd\n", "not a header"),
        ("label,x\n0,1\n1,2,3\n", "Line: 3.*correct or remove the line"),
        ("label,x\n", "no rows"),
    ],
)
def test_bad_files_are_reported_with_the_fix(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        of(put(tmp_path, text))


@pytest.mark.parametrize(
    ("options", "words"),
    [({"memory": "much"}, "--memory"), ({"temporary": Path("/no/such")}, "temporary files")],
)
def test_bad_options_are_reported(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        of(put(tmp_path, CLICKS), **options)


def test_a_truncated_archive_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv.xz"
    path.write_bytes(lzma.compress(CLICKS.encode() * 10_000)[:-20])

    with pytest.raises(DataError, match="clicks"):
        of(str(path))
