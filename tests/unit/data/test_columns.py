from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data import Dataset, Mode, Prefetcher, as_source, open_source
from elasticdl.data.interface import ColumnarSource, RecordSource
from elasticdl.errors import DataError, ModelError
from elasticdl.spec import DataSpec
from tests.properties import examples

cells = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00", exclude_categories=["Cs"]), max_size=6)
tricky = st.sampled_from(["", '"', '""', "a\nb", "\ufeff", "é,\t", " ", "x"])


def columns_of(source: RecordSource, indices: list[int]) -> list[dict[str, Any]]:
    assert isinstance(source, ColumnarSource)
    batch = source.read_columns(np.array(indices, dtype=np.int64), {})
    assert batch.schema.names == list(source.columns)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


@settings(max_examples=examples(80))
@given(
    st.lists(st.lists(cells | tricky, min_size=3, max_size=3), min_size=1, max_size=15),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([",", "\t", ";"]),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_columns_of_any_csv_file_are_those_of_its_records_and_nothing_is_null(
    tmp_path_factory: pytest.TempPathFactory,
    table: list[list[str]],
    newline: str,
    delimiter: str,
    quote_all: bool,
    last_newline: bool,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("table") / "table.txt"
    out = io.StringIO(newline="")
    quoting: Any = csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    csv.writer(out, delimiter=delimiter, lineterminator=newline, quoting=quoting).writerows([["a", "b", "c"], *table])
    text = out.getvalue()
    path.write_bytes((text if last_newline else text.removesuffix(newline)).encode())
    spec = DataSpec(format="csv", delimiter=delimiter, columns=data.draw(st.sampled_from([(), ("c", "a")])))
    source = open_source(str(path), spec)
    numbers = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=30))

    expected = [{k: v or None for k, v in row.items()} for row in source.read(np.array(numbers, dtype=np.int64))]

    assert columns_of(source, numbers) == expected


def test_several_files_are_one_table_in_the_order_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\tx\n2\t\n3\tz")
    (tmp_path / "b.tsv").write_text("4\tu\n5\tv\n")
    source = open_source(str(tmp_path), DataSpec(columns=("n", "s")))

    columns = columns_of(source, [4, 2, 2, 0, 1])

    assert columns == [
        {"n": n, "s": s} for n, s in [("5", "v"), ("3", "z"), ("3", "z"), ("1", "x"), ("2", None)]
    ]  # fmt: skip
    assert columns_of(source, []) == []


def test_parquet_columns_keep_their_types_and_take_others(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2, None, 4, 5], "s": list("abcde")}), tmp_path / "a.parquet", row_group_size=2)
    source = open_source(str(tmp_path / "a.parquet"), DataSpec())
    assert isinstance(source, ColumnarSource)

    batch = source.read_columns(np.array([4, 0, 3, 2]), {"x": pa.float32()})

    assert batch.schema.field("x").type == pa.float32()
    assert batch.to_pydict() == {"x": [5, 1, 4, None], "s": ["e", "a", "d", "c"]}
    assert columns_of(source, [1, 2]) == source.read(np.array([1, 2]))


def test_a_schema_makes_numbers_of_text_and_nothing_of_empty_fields(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\t0.5\tab\n0\t\tcd\n")
    dataset = Dataset(open_source(str(tmp_path / "a.tsv"), DataSpec(columns=("label", "x", "c"))))

    def parse(batch: Any) -> Any:
        assert batch.schema.field("c").type == pa.string() and batch.column("x").null_count == 1
        return batch.column("x").fill_null(-1).to_numpy(), batch.column("label").to_numpy()

    batch = dataset.map_columns(parse, schema={"label": "int64", "x": pa.float32()}).read_batch(np.array([1, 0]))

    assert batch is not None and batch.size == 2
    assert batch.features.tolist() == [-1, 0.5] and batch.features.dtype == np.float32
    assert batch.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3,x1", r"a\.csv, line 4, column 'y': expected int64, got 'x1'; correct the value, or leave the column out"),
        ("3,99999999999999999999", r"line 4, column 'y': expected int64, got '9999"),
        ("3", r"a\.csv, line 4: expected 2 fields \('x', 'y'\), got 1"),
        ("3,4\r5", r"a\.csv, line 4: .*carriage return|new-line"),
    ],
)
def test_a_value_of_another_type_is_named_by_file_line_and_column(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "a.csv").write_bytes(f'x,y\n"1\n",2\n{line}\n5,6\n'.encode())
    dataset = Dataset(open_source(str(tmp_path / "a.csv"), DataSpec())).map_columns(lambda b: b, {"y": "int64"})

    assert dataset.read(np.array([2, 0])).column("y").to_pylist() == [6, 2]
    with pytest.raises(DataError, match=message):
        dataset.read(np.array([2, 1, 0]))


def test_records_of_python_become_columns_too() -> None:
    dataset = Dataset(as_source([{"x": n, "s": str(n)} for n in range(5)], "made-up"))

    batch = dataset.map_columns(lambda b: (b["x"].to_numpy(), b["s"].to_numpy()), {"s": "float32"}).read_batch(
        np.array([3, 1])
    )

    assert batch is not None and batch.features.tolist() == [3, 1] and batch.labels.tolist() == [3.0, 1.0]


def test_columns_are_read_ahead_as_records_are(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n2\n3\n")
    dataset = Dataset(open_source(str(tmp_path / "a.csv"), DataSpec())).map_columns(
        lambda b: (b["x"].to_numpy(), b["x"].to_numpy()), {"x": "int64"}
    )
    first, second = np.array([2, 0]), np.array([1])

    with Prefetcher(dataset) as ahead:
        ahead.expect([("a", first), ("b", second)])
        batches = [
            dataset.make_batch(ahead.take(key, indices), indices) for key, indices in [("a", first), ("b", second)]
        ]

    assert [batch.features.tolist() for batch in batches if batch] == [[3, 1], [2]]


def test_what_follows_columns_gets_what_their_function_gave(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    dataset = Dataset(open_source(str(tmp_path / "a.csv"), DataSpec()), Mode.PREDICTION)

    batch = dataset.map_columns(lambda b: b["x"].to_numpy(), {"x": "int64"}).map_batches(lambda x: x * 2).read_batch(
        np.array([0, 1])
    )  # fmt: skip

    assert batch is not None and batch.features.tolist() == [2, 4] and batch.labels is None


def test_wrong_uses_are_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("price,y\n1,2\n")
    dataset = Dataset(open_source(str(tmp_path / "a.csv"), DataSpec()))

    with pytest.raises(ModelError, match=r"no column 'prise' among 'price', 'y'; did you mean 'price'\?"):
        dataset.map_columns(len, {"prise": "float32"})
    with pytest.raises(ModelError, match="'flaot' is not an Arrow type"):
        dataset.map_columns(len, {"price": "flaot"})
    with pytest.raises(ModelError, match=r"map_columns\(len\) follows map\(len\).*put it first"):
        dataset.map(len).map_columns(len)
    with pytest.raises(ModelError, match=r"map\(len\) follows map_columns\(len\)"):
        dataset.map_columns(len).map(len)
    with pytest.raises(DataError, match=r"a\.csv, line 2 and 0 more records: map_columns.*the record has 'price', 'y'"):
        dataset.map_columns(lambda b: b["z"]).read_batch(np.array([0]))
    with pytest.raises(DataError, match="needs records with columns"):
        Dataset(as_source([1, 2], "numbers")).map_columns(len).read_batch(np.array([0]))
