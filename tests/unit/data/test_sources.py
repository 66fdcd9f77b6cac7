from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticdl.data.interface import RecordSource
from elasticdl.data.readers.tfrecord import write_tfrecord
from elasticdl.data.sources import open_source
from elasticdl.errors import DataError
from elasticdl.spec import DataSpec


def write(directory: Path, **files: str) -> None:
    for name, text in files.items():
        path = directory / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def values(source: RecordSource) -> list[str]:
    return [record["x"] for record in source.read(np.arange(len(source)))]


def test_a_directory_is_all_its_files_sorted_without_the_hidden_ones(tmp_path: Path) -> None:
    write(tmp_path, b__csv="x\n3\n", a__csv="x\n1\n2\n", _SUCCESS="", __hidden="?", README__md="not data")

    assert values(open_source(str(tmp_path), DataSpec())) == ["1", "2", "3"]


def test_a_glob_and_a_list_are_their_files(tmp_path: Path) -> None:
    write(tmp_path, a__csv="x\n1\n", b__csv="x\n2\n", c__csv="x\n3\n")

    assert values(open_source(f"{tmp_path}/[ab].csv", DataSpec())) == ["1", "2"]
    assert values(open_source(f"{tmp_path}/c.csv, {tmp_path}/a*.csv", DataSpec())) == ["3", "1"]


def test_a_file_with_a_comma_in_its_name_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "a,b[1].csv").write_text("x\n1\n")

    assert values(open_source(f"{tmp_path}/a,b[1].csv", DataSpec())) == ["1"]


def test_records_of_several_files_are_read_together_in_the_order_asked_for(tmp_path: Path) -> None:
    write(tmp_path, a__csv="x\n0\n1\n", b__csv="x\n", c__csv="x\n2\n3\n4\n")
    source = open_source(str(tmp_path), DataSpec(), tmp_path / "index")

    assert [record["x"] for record in source.read(np.array([4, 0, 3, 1, 4]))] == ["4", "0", "3", "1", "4"]
    assert source.locate(3).endswith("c.csv, line 3")
    assert source.can_read_ahead
    assert source.columns == ("x",)


def test_the_extension_chooses_the_format(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "a.tfrecords", [b"one"])
    pq.write_table(pa.table({"x": [1.5]}), tmp_path / "a.pq")
    write(tmp_path, a__tsv="x\ty\n1\t2\n")

    assert open_source(str(tmp_path / "a.tfrecords"), DataSpec()).read(np.array([0])) == [b"one"]
    assert open_source(str(tmp_path / "a.pq"), DataSpec()).read(np.array([0])) == [{"x": 1.5}]
    assert open_source(str(tmp_path / "a.tsv"), DataSpec()).read(np.array([0])) == [{"x": "1", "y": "2"}]


def test_the_format_asked_for_goes_before_the_extension(tmp_path: Path) -> None:
    write(tmp_path, train__txt="x\n1\n")

    assert values(open_source(str(tmp_path / "train.txt"), DataSpec(format="csv"))) == ["1"]


@pytest.mark.parametrize(
    ("path", "spec", "message"),
    [
        ("none.csv", DataSpec(), r"none\.csv: no such file; check the path"),
        ("*.parquet", DataSpec(), r"no file matches"),
        ("empty.csv", DataSpec(), r"empty\.csv: the file is empty \(0 bytes\)"),
        ("header.csv", DataSpec(), r"header\.csv: no records in 1 file"),
        ("notes.txt", DataSpec(), r"notes\.txt: no format is known for the extension '\.txt' .* data\.format: csv"),
        ("a.csv.lz4", DataSpec(format="csv"), r"decompress it first"),
        ("a.csv,b.csv", DataSpec(), r"b\.csv: its columns \['y'\] are not the columns \['x'\] of .*a\.csv"),
        ("a.csv,a.csv", DataSpec(), r"a\.csv: named twice"),
        ("a.csv,a.tfrecord", DataSpec(), r"a\.tfrecord is tfrecord but .*a\.csv is csv"),
        ("bare", DataSpec(), r"notes\.md: no format is known for the extension '\.md'"),
        ("hidden", DataSpec(), r"the directory has no data files"),
        ("a.tfrecord", DataSpec(columns=("x",)), r"data\.columns: records of TFRecord files are bytes"),
        ("a.csv", DataSpec(format="python"), r"define custom_data_reader"),
        ("a.csv", DataSpec(format="parquet"), r"a\.csv, byte 0: no complete Parquet file"),
    ],
)
def test_a_path_that_leads_to_no_data_is_refused_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, spec: DataSpec, message: str
) -> None:
    write(
        tmp_path, a__csv="x\n1\n", b__csv="y\n1\n", header__csv="x\n", empty__csv="", notes__txt="x\n", a__csv__lz4="?"
    )
    write(tmp_path / "bare", notes__md="?")
    write(tmp_path / "hidden", _SUCCESS="?")
    write_tfrecord(tmp_path / "a.tfrecord", [b"one"])
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DataError, match=message):
        open_source(path, spec)


def test_an_address_of_no_known_file_system_is_refused() -> None:
    with pytest.raises(DataError, match="no file system for this address"):
        open_source("nowhere://a.csv", DataSpec())
    with pytest.raises(DataError, match="the data path is empty"):
        open_source(" ", DataSpec())


def test_progress_counts_the_bytes_of_all_files(tmp_path: Path) -> None:
    write(tmp_path, a__csv="x\n1\n", b__csv="x\n22\n")
    calls: list[tuple[int, int]] = []

    open_source(str(tmp_path), DataSpec(), None, lambda done, total: calls.append((done, total)))

    assert calls[-1] == (9, 9)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_files_that_are_not_local_are_read_through_fsspec() -> None:
    import fsspec

    with fsspec.open("memory://elasticdl-test/a.csv", "wb") as file:
        file.write(b"x\n1\n2\n3\n")

    source = open_source("memory://elasticdl-test/a.csv", DataSpec())

    assert [record["x"] for record in source.read(np.array([2, 0]))] == ["3", "1"]
