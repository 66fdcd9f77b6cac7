from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.data.sources import open_source
from elasticdl.errors import DataError
from elasticdl.spec import DataSpec


def write(path: Path, records: list[Any]) -> str:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return str(path)


def test_records_are_read_by_number_in_any_order(tmp_path: Path) -> None:
    records = [{"text": f'a "quoted" line {number}\nof two', "tags": [number]} for number in range(50)]
    source = open_source(write(tmp_path / "texts.jsonl", records), DataSpec(), tmp_path / "index")
    assert len(source) == 50 and source.columns == ()
    assert source.read(np.array([7, 49, 7, 8])) == [records[number] for number in (7, 49, 7, 8)]


@given(records=st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none()), min_size=1, max_size=8))
def test_every_json_value_comes_back(records: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("lines") / "any.ndjson"
    path.write_bytes(b"\n\r\n".join(json.dumps(record, ensure_ascii=False).encode() for record in records))
    source = open_source(str(path), DataSpec())
    assert source.read(np.arange(len(source))) == records


def test_chosen_columns_are_keys_and_missing_ones_are_null(tmp_path: Path) -> None:
    path = write(tmp_path / "texts.jsonl", [{"x": 1, "y": 2}, {"x": 3}])
    source = open_source(path, DataSpec(columns=("y", "x")))
    assert source.columns == ("y", "x")
    assert source.read(np.arange(2)) == [{"y": 2, "x": 1}, {"y": None, "x": 3}]
    numbers = write(tmp_path / "numbers.jsonl", [1, 2])
    with pytest.raises(DataError, match=r"numbers\.jsonl, line 1: data\.columns are keys of JSON objects, .* is int"):
        open_source(numbers, DataSpec(columns=("x",)))


def test_compressed_lines_are_unpacked(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl.gz").write_bytes(gzip.compress(b'{"x": 1}\n{"x": 2}\n'))
    source = open_source(str(tmp_path / "texts.jsonl.gz"), DataSpec(), tmp_path / "index")
    assert source.read(np.array([1])) == [{"x": 2}]


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n\n{"x": \n{"x": 2}\n')
    source = open_source(str(tmp_path / "a.jsonl"), DataSpec())
    with pytest.raises(DataError, match=r"a\.jsonl, line 3: not a JSON value: .* expected one value on each line"):
        source.read(np.array([1]))
    (tmp_path / "b.jsonl").write_text('[\n{"x": 1}\n]\n')
    with pytest.raises(DataError, match=r"b\.jsonl, line 1: not a JSON value"):
        open_source(str(tmp_path / "b.jsonl"), DataSpec())
    (tmp_path / "c.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match=r"c\.jsonl: the file has only empty lines"):
        open_source(str(tmp_path / "c.jsonl"), DataSpec())
