"""The native counter of CSV beside DuckDB: the same statistics, or the same errors."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.errors import DataError
from elasticdl.features import analysis
from elasticdl.features.sql import csv_engine, input_files, summary
from elasticdl.features.sql.csv_engine import CsvEngine
from elasticdl.features.sql.duckdb_engine import DuckdbEngine
from elasticdl.features.sql.interface import AnalysisOptions
from elasticdl.features.statistics import ColumnStatistics
from tests.properties import examples
from tests.unit.features import oracle, tables

Found = tuple[int, dict[str, ColumnStatistics]]


def of(engine: CsvEngine | DuckdbEngine, question: AnalysisOptions) -> Found | str:
    """The statistics, or what was said instead."""
    try:
        columns = engine.columns()
        return summary.build_statistics(
            engine.summarize(columns, question, analysis.ignore_progress), columns, question
        )
    except DataError as exc:
        return str(exc)
    finally:
        engine.close()


def both(path: Path, question: AnalysisOptions, memory: str = "512MB") -> tuple[Found | str, Found | str]:
    source = input_files.find_input_files(str(path), (), None)
    assert isinstance(source, input_files.CsvFiles)
    ours = of(CsvEngine(source, "clicks", memory, path.parent), question)
    return ours, of(DuckdbEngine(source, "clicks", "512MB", path.parent), question)


def agree(ours: Found | str, theirs: Found | str) -> None:
    if isinstance(ours, str) or isinstance(theirs, str):
        assert ours == theirs
        return
    assert ours[0] == theirs[0]
    assert list(ours[1]) == list(theirs[1])
    for name, column in ours[1].items():
        oracle.close(column, theirs[1][name])


def written(value: str | None, delimiter: str, always: bool) -> str:
    if value is None:
        return ""
    if always or any(letter in value for letter in f'"\r\n{delimiter}'):
        return '"' + value.replace('"', '""') + '"'
    return value


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, str, list[list[str | None]]]:
    """A file, its ending, and what is in it."""
    columns = draw(tables.columns())
    delimiter, ending = draw(st.sampled_from([(",", ".csv"), ("\t", ".tsv")]))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    always = draw(st.booleans())
    lines = [delimiter.join(f"c{index}" for index in range(len(columns)))]
    lines += [delimiter.join(written(value, delimiter, always) for value in row) for row in zip(*columns, strict=True)]
    return end.join(lines) + draw(st.sampled_from(["", end])), ending, columns


@settings(max_examples=examples(40))
@given(texts(), st.integers(1, 3), st.integers(1, 40))
def test_the_counter_agrees_with_duckdb(
    table: tuple[str, str, list[list[str | None]]], min_count: int, max_values: int
) -> None:
    question = AnalysisOptions(min_count=min_count, quantile_steps=20, max_values=max_values)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"clicks{table[1]}"
        path.write_bytes(table[0].encode())
        agree(*both(path, question))


_RUBBISH = st.text(st.sampled_from('a1,"\n\r \u00e9\u3000|'), max_size=60)


@settings(max_examples=examples(60))
@given(_RUBBISH, st.integers(1, 3))
def test_malformed_files_are_reported_as_by_duckdb(text: str, columns: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "clicks.csv"
        path.write_bytes((",".join("abc"[:columns]) + "\n" + text).encode())
        agree(*both(path, AnalysisOptions(min_count=1)))


VALUES = [
    "5.",
    ".5", "+5", "-0", "1e5", "1.e-5", ".1E+299", "123456789e1", "1e300", "0x1", "1_000", "1e", "--1", "inf", "nan",
    "9" * 299, "9" * 300, " 7 ", "7 7", "2026-02-29", "2024-02-29", "1000-01-01", "1969-12-31 23:59:59.999999999",
    "2026-01-01T10:00", "2026-01-01 10:00Z", "2026-01-01T10:00:00.5Z", "2026-01-01 24:00", "2026-01-01 10",
    "2999-12-31",
    "2026-01-01 10:00:00.1234567", "2026-1-1", "\u00a0", "\u3000 ", "\u200b", "a|b", "|", "||", "a||b", "12345678",
    "123456789", "v" * 200, "\U0001f600", "é" * 4, "é" * 5,
]  # fmt: skip


@pytest.fixture
def without_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks the engine to read by DuckDB fails."""
    monkeypatch.setattr(csv_engine, "DuckdbEngine", None)


@pytest.mark.usefixtures("without_duckdb")
@pytest.mark.parametrize("value", VALUES)
def test_odd_values_mean_the_same(tmp_path: Path, value: str) -> None:
    (tmp_path / "clicks.csv").write_text(f"a,b\n{value},1\n{value},1\n{value},2\n")

    ours, theirs = both(tmp_path / "clicks.csv", AnalysisOptions(min_count=1))

    assert not isinstance(ours, str)
    agree(ours, theirs)


def plain_lines(rows: int, ending: str = "\n") -> str:
    lines = (
        f"{row % 2},{row % 7 / 4},{row},{'v' * (row % 13)}{row % 1000},a{row % 5}|b{row % 300:09}"
        for row in range(rows)
    )
    return ending.join(["label,x,id,word,many", *lines]) + ending


@pytest.mark.usefixtures("without_duckdb")
@pytest.mark.parametrize("memory", ["512MB", "1MB"])
def test_many_rows_over_threads_blocks_and_runs_on_disk(
    tmp_path: Path, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_engine, "_BLOCK_BYTES", 200_000)
    (tmp_path / "clicks.csv").write_text(plain_lines(40_000))

    agree(*both(tmp_path / "clicks.csv", AnalysisOptions(max_values=50), memory))
    assert [entry.name for entry in tmp_path.iterdir()] == ["clicks.csv"]


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3\n",
        "a,b\n1,2\n3,4,5\n",
        "a,b\n1,2\n\n3,4\n",
        "a,b\n1,2\r\n3,4\n",
        'a,b\n1,"2\n3,4\n',
        'a,b\n1,2"3\n',
        'a,b\n1,"2"3\n',
        "a,b\r\n1,2\r\n3,4",
        "a\n1\n\n2\n",
        "a,b\n1,\0\n",
    ],
)
def test_lines_that_are_not_plain_are_left_to_duckdb(tmp_path: Path, text: str) -> None:
    (tmp_path / "clicks.csv").write_text(text, newline="")

    agree(*both(tmp_path / "clicks.csv", AnalysisOptions(min_count=1)))


def test_bytes_that_are_not_utf8_are_reported(tmp_path: Path) -> None:
    (tmp_path / "clicks.csv").write_bytes(b"a,b\n1,\xff\xfe\n")

    ours, theirs = both(tmp_path / "clicks.csv", AnalysisOptions())

    assert isinstance(ours, str)
    assert ours == theirs


@pytest.mark.parametrize("rows", [0, 1, 999, 1000, 5000])
def test_the_first_rows_are_those_that_duckdb_takes(tmp_path: Path, rows: int) -> None:
    (tmp_path / "clicks.csv").write_text(plain_lines(1000))

    agree(*both(tmp_path / "clicks.csv", AnalysisOptions(max_rows=rows)))


@pytest.mark.parametrize("columns", [("x",), ("word", "label")])
def test_only_columns_that_are_asked_for_are_counted(tmp_path: Path, columns: Sequence[str]) -> None:
    (tmp_path / "clicks.csv").write_text(plain_lines(100))
    source = input_files.find_input_files(str(tmp_path / "clicks.csv"), columns, None)
    assert isinstance(source, input_files.CsvFiles)

    ours = of(CsvEngine(source, "clicks", "512MB", tmp_path), AnalysisOptions())

    assert not isinstance(ours, str)
    assert list(ours[1]) == list(columns)
    agree(ours, of(DuckdbEngine(source, "clicks", "512MB", tmp_path), AnalysisOptions()))


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "clicks.csv").write_text(plain_lines(1000))
    source = input_files.find_input_files(str(tmp_path / "clicks.csv"), (), None)
    assert isinstance(source, input_files.CsvFiles)

    message = of(CsvEngine(source, "clicks", "1KB", tmp_path / "gone"), AnalysisOptions())

    assert message == f"clicks: temporary file in {tmp_path / 'gone'}: No such file or directory"
