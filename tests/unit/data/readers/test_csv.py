from __future__ import annotations

import csv
import io
import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data.files.stored_file import find_file
from elasticdl.data.readers.csv import CsvSource, open_csv
from elasticdl.errors import BadRecord, DataError
from tests.properties import examples


def source_of(path: Path, content: str | bytes, columns: tuple[str, ...] = (), index: Path | None = None) -> CsvSource:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return open_csv(find_file(str(path)), columns, index)


def read_all(source: CsvSource) -> list[dict[str, str]]:
    return source.read(np.arange(len(source)))


cells = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00", exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=15),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["\t", ","]),
    st.data(),
)
def test_any_records_written_by_the_csv_module_are_read_back_in_any_order(
    tmp_path_factory: pytest.TempPathFactory,
    table: list[tuple[str, str, str]],
    newline: str,
    delimiter: str,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("table") / ("table.csv" if delimiter == "," else "table.tsv")
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=newline).writerows([("a", "b", "c"), *table])
    source = source_of(path, out.getvalue())
    numbers = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=30))

    records = source.read(np.array(numbers, dtype=np.int64))

    assert records == [dict(zip("abc", table[index], strict=True)) for index in numbers]


def test_header_bom_carriage_returns_empty_lines_and_a_missing_last_newline(tmp_path: Path) -> None:
    source = source_of(tmp_path / "a.csv", b"\xef\xbb\xbfx,y\r\n1,2\r\n\r\n3,4")

    assert source.columns == ("x", "y")
    assert read_all(source) == [{"x": "1", "y": "2"}, {"x": "3", "y": "4"}]


def test_given_names_that_the_first_line_has_choose_columns(tmp_path: Path) -> None:
    source = source_of(tmp_path / "a.csv", "x,y,z\n1,2,3\n", ("z", "x"))

    assert read_all(source) == [{"z": "3", "x": "1"}]


def test_given_names_that_the_first_line_lacks_name_its_fields(tmp_path: Path) -> None:
    source = source_of(tmp_path / "a.csv", "5,0,0\n6,1,1\n", ("label", "0", "1"))

    assert read_all(source) == [{"label": "5", "0": "0", "1": "0"}, {"label": "6", "0": "1", "1": "1"}]


def test_one_chosen_column_is_a_whole_value(tmp_path: Path) -> None:
    assert read_all(source_of(tmp_path / "a.csv", "x,text\n1,hello\n", ("text",))) == [{"text": "hello"}]


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("x,y\n1,2\n", ("x", "w"), r"line 1: no column 'w' in the header 'x', 'y'; correct data.columns"),
        ("1,2,3\n", ("x", "y"), r"line 1: data.columns gives 2 names .* has 3 fields"),
        ("1.5,2\n3,4\n", (), r"line 1: expected a header, got numbers: '1.5', '2'; if the file has no header"),
        ("x,x\n1,2\n", (), r"line 1: the header names a column twice: 'x', 'x'"),
        ("x,y\n1,2\n", ("x", "x"), r"data.columns names a column twice"),
        ("\n\n", (), r"only empty lines"),
        (b"x,y\n\xff\n"[:2] + b"\xff\n1,2\n", (), r"line 1: not a CSV file in UTF-8"),
        ('x,y\n1,2\n3,"4\n5,6\n', (), r"line 3: a quote .* never closed"),
        ("x,y\r1,2\r", (), r"line 1: a carriage return inside a record"),
    ],
)
def test_a_file_that_is_not_as_described_is_refused_with_line_and_fix(
    tmp_path: Path, content: str | bytes, columns: tuple[str, ...], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        source_of(tmp_path / "wrong.csv", content, columns)

    assert "wrong.csv" in str(caught.value) or "data.columns" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1,2,3", r"wrong.csv, line 5: expected 2 fields \('x', 'y'\), got 3"),
        (b"1", r"wrong.csv, line 5: expected 2 fields \('x', 'y'\), got 1"),
        (b"1,\xff", r"wrong.csv, line 5, byte 18: not UTF-8"),
        (b"1\r2,3", r"wrong.csv, line 5: .*carriage return|new-line"),
    ],
)
def test_a_wrong_record_is_named_by_its_line(tmp_path: Path, line: bytes, message: str) -> None:
    source = source_of(tmp_path / "wrong.csv", b'x,y\n"1\n2",2\n3,4\n' + line + b"\n5,6\n")

    assert source.read(np.array([3, 1])) == [{"x": "5", "y": "6"}, {"x": "3", "y": "4"}]
    with pytest.raises(DataError, match=message):
        source.read(np.array([3, 2, 0]))


def test_a_field_may_be_longer_than_the_csv_modules_own_limit(tmp_path: Path) -> None:
    text = "word " * 50_000

    assert read_all(source_of(tmp_path / "a.csv", f"text\n{text}\n")) == [{"text": text}]


def test_the_delimiter_of_another_extension_is_told_by_the_first_line(tmp_path: Path) -> None:
    assert source_of(tmp_path / "train.txt", "x\ty,z\n").columns == ("x", "y,z")
    assert source_of(tmp_path / "adult.data", "x,y\n").columns == ("x", "y")


def test_an_index_is_built_once_and_used_again(tmp_path: Path) -> None:
    index = tmp_path / "index"
    calls: list[tuple[int, int]] = []
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n2\n")

    for _ in range(2):
        source = open_csv(find_file(str(path)), (), index, lambda done, total: calls.append((done, total)))
        assert read_all(source) == [{"x": "1"}, {"x": "2"}]

    assert calls == [(6, 6)]
    (stored,) = index.glob("*.i64")
    assert np.fromfile(stored, dtype="<i8").tolist()[:-1] == [0, 2, 4, 6]


def test_an_index_of_an_older_content_is_never_used(tmp_path: Path) -> None:
    path, index = tmp_path / "a.csv", tmp_path / "index"
    source_of(path, "x\n1\n2\n", index=index)

    source = source_of(path, "x\n12345\n", index=index)
    assert read_all(source) == [{"x": "12345"}]

    path.write_text("x\n1\n2222\n")
    os.utime(path, ns=(1, 1))
    assert read_all(open_csv(find_file(str(path)), (), index)) == [{"x": "1"}, {"x": "2222"}]


def test_a_torn_index_is_built_anew(tmp_path: Path) -> None:
    path, index = tmp_path / "a.csv", tmp_path / "index"
    source_of(path, "x\n1\n2\n", index=index)
    (stored,) = index.glob("*.i64")
    stored.write_bytes(stored.read_bytes()[:-3])

    assert read_all(open_csv(find_file(str(path)), (), index)) == [{"x": "1"}, {"x": "2"}]


@pytest.mark.parametrize("byte", range(0, 40, 3))
def test_an_index_with_a_flipped_bit_is_built_anew(tmp_path: Path, byte: int) -> None:
    path, index = tmp_path / "a.csv", tmp_path / "index"
    source_of(path, "x\n1\n2\n", index=index)
    (stored,) = index.glob("*.i64")
    content = bytearray(stored.read_bytes())
    content[byte] ^= 1
    stored.write_bytes(content)

    assert read_all(open_csv(find_file(str(path)), (), index)) == [{"x": "1"}, {"x": "2"}]


def test_carriage_returns_that_make_up_for_each_other_are_refused(tmp_path: Path) -> None:
    """One makes two records of one, the others none of one: the number is right, the records are not."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"x\n1\r2\n\r\r\n3\n")
    source = open_csv(find_file(str(path)), (), tolerates_bad=True)
    with pytest.raises(BadRecord, match="line 2: a carriage return inside a record"):
        source.read(np.arange(2))
    with pytest.raises(BadRecord, match="line 2: a carriage return inside a record"):
        source.read_columns(np.arange(2), {})
    path.write_bytes(b'x\n"1\r2"\n3\n')
    assert read_all(open_csv(find_file(str(path)), ())) == [{"x": "1\r2"}, {"x": "3"}]


def test_several_workers_may_build_an_index_at_once(tmp_path: Path) -> None:
    path, index = tmp_path / "a.csv", tmp_path / "index"
    path.write_text("x\n" + "1\n" * 1000)

    with ThreadPoolExecutor(8) as pool:
        sources = list(pool.map(lambda _: open_csv(find_file(str(path)), (), index), range(8)))

    assert [len(source) for source in sources] == [1000] * 8
    assert sorted(path.suffix for path in index.iterdir()) == [".digest", ".i64"]


def test_an_index_that_cannot_be_written_is_an_error_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("a file where a directory should be")

    with pytest.raises(DataError, match=r"a\.csv: its index cannot be written to .*index"):
        source_of(tmp_path / "a.csv", "x\n1\n", index=tmp_path / "index")


def test_a_failed_scan_leaves_no_index_behind(tmp_path: Path) -> None:
    index = tmp_path / "index"

    with pytest.raises(DataError):
        source_of(tmp_path / "a.csv", 'x\n"1\n', index=index)

    assert list(index.iterdir()) == []


def test_a_file_that_changes_while_it_is_used_is_an_error(tmp_path: Path) -> None:
    source = source_of(tmp_path / "a.csv", "x\n1\n2\n")
    (tmp_path / "a.csv").write_text("x\n1\n")

    with pytest.raises(DataError, match=r"a\.csv: the file changed while the job was using it"):
        read_all(source)


def test_a_number_outside_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexError, match="records 0 … 0"):
        source_of(tmp_path / "a.csv", "x\n1\n").read(np.array([1]))


def test_opening_reads_neither_the_file_into_memory_nor_more_than_the_records_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with path.open("wb") as out:
        out.write(b"x,y\n")
        for _ in range(160):
            out.write(b"1,abcdefghijklmnopqrstuvwxyz\n" * 10_000)
    tracemalloc.start()
    source = open_csv(find_file(str(path)), (), tmp_path / "index")
    source.read(np.array([0, 1_599_999]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    # Two blocks and what is found in one of them; the index itself is on disk.
    assert path.stat().st_size > 44 << 20
    assert peak < 20 << 20
