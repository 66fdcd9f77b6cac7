"""Predictions of data with bad rows: which records are predicted and which reported, with their ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from elasticdl.data.dataset import Dataset, Mode
from elasticdl.data.sources import open_source
from elasticdl.errors import DataError, SpecError
from elasticdl.model import tensors
from elasticdl.model.evaluation import PredictedBatch, predict_records
from elasticdl.spec import DataSpec
from elasticdl.worker.leases.prediction_file import PredictionFile

CPU = torch.device("cpu")
ROWS = ["id,price", "a,1", "b,2", "c,none", "d,4", "e,5,too,many", "f,6", "007,7"]


def dataset_of(tmp_path: Path, rows: list[str]) -> Dataset:
    (tmp_path / "new.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "index").mkdir(exist_ok=True)
    source = open_source(str(tmp_path / "new.csv"), DataSpec(), tmp_path / "index")
    return Dataset(source, Mode.PREDICTION, stack=tensors.stack_values)


def by_records(tmp_path: Path, rows: list[str] = ROWS) -> Dataset:
    return dataset_of(tmp_path, rows).map(lambda record: np.array([float(record["price"])], np.float32))


def by_columns(tmp_path: Path, rows: list[str] = ROWS) -> Dataset:
    def make_features(batch: pa.RecordBatch) -> torch.Tensor:
        return torch.from_numpy(batch.column("price").to_numpy(zero_copy_only=False).copy()).reshape(-1, 1)

    return dataset_of(tmp_path, rows).map_columns(make_features, {"price": "float32"})


def predict(dataset: Dataset, minibatch: int = 4, *, tolerates: bool = True) -> list[PredictedBatch]:
    stop = len(dataset.source)
    return list(predict_records(nn.Identity(), dataset, 0, stop, minibatch, CPU, tolerates_bad_rows=tolerates))


def written(tmp_path: Path, dataset: Dataset, *, marks: bool) -> list[dict[str, Any]]:
    file = PredictionFile(tmp_path / "out", 0, dataset.source, "id", marks_bad_rows=marks)
    for predicted in predict(dataset):
        if predicted.predictions is not None:
            file.add_predictions(predicted.records, predicted.predictions)
        if marks:
            file.add_bad_rows(predicted.bad)
    file.write()
    rows: list[dict[str, Any]] = pq.read_table(tmp_path / "out").to_pylist()
    return rows


@pytest.mark.parametrize("build", [by_records, by_columns])
def test_bad_rows_are_reported_and_the_others_predicted(tmp_path: Path, build: Any) -> None:
    first, second = predict(build(tmp_path))

    assert (first.records.tolist(), list(first.bad)) == ([0, 1, 3], [2])
    assert (second.records.tolist(), list(second.bad)) == ([5, 6], [4])
    assert first.predictions.flatten().tolist() == [1.0, 2.0, 4.0]
    assert "new.csv, line 4" in first.bad[2] and "none" in first.bad[2]
    assert "new.csv, line 6" in second.bad[4]


@pytest.mark.parametrize("build", [by_records, by_columns])
def test_without_tolerance_the_first_bad_row_is_an_error_with_the_fix(tmp_path: Path, build: Any) -> None:
    with pytest.raises(DataError, match=r"new.csv, line 4.*--bad_rows=skip or mark"):
        predict(build(tmp_path), tolerates=False)


def test_a_job_whose_rows_are_all_bad_fails(tmp_path: Path) -> None:
    rows = ["id,price", *["x,none"] * 40]

    with pytest.raises(DataError, match="all of 32 records from record 0 on are bad"):
        predict(by_records(tmp_path, rows), minibatch=32)


def test_filtered_records_have_no_row_in_the_predictions(tmp_path: Path) -> None:
    rows = ["id,price", "a,1", "b,2", "c,3"]
    dataset = dataset_of(tmp_path, rows).filter(lambda record: record["id"] != "b")
    dataset = dataset.map(lambda record: np.array([float(record["price"])], np.float32))

    assert [row["record"] for row in written(tmp_path, dataset, marks=False)] == [0, 2]


def test_ids_are_written_beside_the_predictions_unchanged(tmp_path: Path) -> None:
    rows = written(tmp_path, by_columns(tmp_path), marks=False)

    assert [row["id"] for row in rows] == ["a", "b", "d", "f", "007"]
    assert list(rows[0]) == ["record", "id", "prediction"]


def test_marked_rows_have_no_prediction_and_the_reason(tmp_path: Path) -> None:
    rows = written(tmp_path, by_records(tmp_path), marks=True)

    assert [row["record"] for row in rows] == list(range(7))
    assert [row["record"] for row in rows if row["prediction"] is None] == [2, 4]
    assert [row["record"] for row in rows if row["error"] is not None] == [2, 4]
    assert rows[2]["id"] == "c"  # its price is wrong
    assert rows[4]["id"] is None  # not even the id of a torn line is known


def test_an_id_column_named_like_an_output_is_refused(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, ["prediction,price", "a,1"])
    file = PredictionFile(tmp_path, 0, dataset.source, "prediction")

    with pytest.raises(SpecError, match="the model has an output 'prediction'"):
        file.add_predictions(np.array([0]), torch.ones(1))
