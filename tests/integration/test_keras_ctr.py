"""A Keras model of clicks from a config alone, through the real command line, and its export without ElasticDL."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests import native
from tests.integration import job as jobs_module
from tests.integration.job import Job, Jobs
from tests.integration.test_keras_job import python

pytest.importorskip("tensorflow")
pytest.importorskip("duckdb")
pq = pytest.importorskip("pyarrow.parquet")
native.require()

CONFIG = """
data: clicks.csv
label: clicked
model: {keras/deepfm: {embedding_dim: 4, hidden_units: [8]}}
features:
  price: [discretization(quantiles=5), normalizer(log=true), missing_indicator]
  shop: hashing(num_bins=50)
  seen: 'sequence(sep=";", max_length=4, like=thing)'
  at: date_parts(parts=[hour, weekday])
  crosses: ["cross(thing, shop, num_bins=100)"]
split: [90, 10, 0]
training: {epochs: 2, batch_size: 64}
workers: 1
job: {workers: {threads: 1}}
"""

# What somebody does with the export who has never heard of ElasticDL.
SERVE = """
import csv, json, sys
sys.modules["elasticdl"] = None  # an import of it would fail
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
program = tf.saved_model.load(sys.argv[1])
with open(sys.argv[2], newline="") as file:
    rows = list(csv.DictReader(file))

def chances(rows):
    columns = {
        name: tf.constant([float(row[name] or "nan") for row in rows], tf.float64) if name in ("price", "shop")
        else tf.constant([row[name] for row in rows])
        for name in ("price", "shop", "thing", "seen", "at")
    }
    return program.serve(columns)["probability"].numpy().view("int32").tolist()

print(json.dumps([bits for first in range(0, len(rows), 64) for bits in chances(rows[first : first + 64])]))
"""


def write(path: Path, rows: int, seed: int, things: str) -> Path:
    numbers = random.Random(seed)
    lines = ["clicked,price,shop,thing,seen,at"]
    for _ in range(rows):
        thing = numbers.choice(things)
        price = f"{numbers.uniform(0, 100):.3f}" if numbers.random() > 0.2 else ""
        shop = numbers.randrange(9) if numbers.random() > 0.1 else ""
        seen = ";".join(numbers.choice(things) for _ in range(numbers.randrange(6)))
        time = f"2024-0{numbers.randint(1, 9)}-1{numbers.randint(0, 9)} {numbers.randint(10, 23)}:30:00"
        clicked = int(numbers.random() < (0.8 if thing in "abc" else 0.2))
        lines.append(f"{clicked},{price},{shop},{thing},{seen},{time}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.timeout(600)
def test_the_saved_model_predicts_the_same_as_a_prediction_job_for_unseen_raw_rows(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "PATIENCE_S", 280.0)  # TensorFlow alone takes seconds to load
    write(tmp_path / "clicks.csv", 800, seed=1, things="abcdef")
    never_seen = write(tmp_path / "new.csv", 150, seed=2, things="abcdefxyzü")
    (tmp_path / "ctr.yaml").write_text(CONFIG)
    training = Job(jobs.home, "clicks")
    jobs.launch(training, ["train", str(tmp_path / "ctr.yaml"), "--detach", "--job_name", "clicks"])
    assert training.result()["phase"] == "succeeded", training.story()
    exported = tmp_path / "ctr-ctr" / "model"
    assert {"saved_model.pb", "preprocessor.json", "model.safetensors"} <= {path.name for path in exported.iterdir()}

    predicting = Job(jobs.home, "predicting")
    arguments = ["predict", str(tmp_path / "ctr.yaml"), "--detach", "--job_name", "predicting"]
    arguments += ["--prediction_data", str(never_seen), "--output", str(tmp_path / "predicted")]
    jobs.launch(predicting, arguments)
    assert predicting.result()["phase"] == "succeeded", predicting.story()

    ours = pq.read_table(tmp_path / "predicted").sort_by("record")["probability"].to_numpy()
    served = json.loads(python(SERVE, str(exported), str(never_seen)))
    assert len(served) == 150 and len(set(served)) > 30
    assert ours.astype("float32").view("int32").tolist() == served
