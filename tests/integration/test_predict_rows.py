"""A prediction job of real processes over data with bad rows, with a column of ids."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from elasticdl.zoo.digits import data
from tests.integration.commands import elasticdl

ROOT = Path(__file__).parents[2]
MODEL = (f"--model_zoo={ROOT / 'examples' / '01-train-a-model'}", "--model_def=model.forward")


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A directory with data, a trained model, and new rows of which the third and the sixth are bad."""
    _, test = data.write_data(tmp_path / "data")
    elasticdl(tmp_path, "train", *MODEL, "--training_data=data/train.csv", "--num_epochs=1", "--output=trained")
    header, *lines = test.read_text().splitlines()[:11]
    rows = [f"user-{number},{line}" for number, line in enumerate(lines)]
    rows[2] = rows[2].replace("user-2,0", "user-2,zero")
    rows[5] = "user-5,1,2"
    (tmp_path / "new.csv").write_text("\n".join([f"user,{header}", *rows]) + "\n")
    return tmp_path


def test_bad_rows_are_skipped_or_marked_as_configured(trained: Path) -> None:
    words = (*MODEL, "--checkpoint_dir_for_init=trained", "--prediction_data=new.csv", "--id_column=user")

    summary = elasticdl(trained, "predict", *words, "--bad_rows=skip", "--output=skipped", "--job_name=skipping")
    elasticdl(trained, "predict", *words, "--bad_rows=mark", "--output=marked")

    line = "bad rows     2, named in elasticdl logs skipping"
    assert line in summary and line in elasticdl(trained, "status", "skipping")
    assert json.loads(elasticdl(trained, "status", "skipping", "--json"))["metrics"] == {"bad_rows": 2.0}
    skipped = pq.read_table(trained / "skipped")
    marked = pq.read_table(trained / "marked")
    assert skipped["user"].to_pylist() == [f"user-{number}" for number in (0, 1, 3, 4, 6, 7, 8, 9)]
    assert marked["record"].to_pylist() == list(range(10))
    assert [row["record"] for row in marked.to_pylist() if row["prediction"] is None] == [2, 5]
    assert "could not convert string to float: 'zero'" in marked["error"][2].as_py()
    assert "expected 66 fields" in marked["error"][5].as_py()
    good = [row["prediction"] for row in marked.to_pylist() if row["error"] is None]
    assert good == skipped["prediction"].to_pylist()
