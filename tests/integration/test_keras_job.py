"""An ordinary Keras model file through the real command line: trained, killed, evaluated, exported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import job as jobs_module
from tests.integration.job import Job, Jobs

pytest.importorskip("tensorflow")

ZOO = Path(__file__).parents[2] / "model_zoo"
MODEL = ["--model_zoo", str(ZOO), "--model_def", "mnist_functional_api.mnist_functional_api.custom_model"]
ROWS = ["--model_zoo", str(Path(__file__).parent), "--model_def", "tiny_keras.forward", "--data_format", "python"]
RECORDS, BATCH, STEPS = 330, 32, 11

# Digits that can be told apart by where they are bright, as the Examples of the tutorial.
WRITE = """
import sys
import numpy as np
import tensorflow as tf

numbers = np.random.default_rng(3)
with tf.io.TFRecordWriter(sys.argv[1]) as writer:
    for record in range(int(sys.argv[2])):
        image = numbers.integers(0, 60, (28, 28)).astype(float)
        image[2 * (record % 10) : 2 * (record % 10) + 6, 4:24] = 250
        feature = {
            "image": tf.train.Feature(float_list=tf.train.FloatList(value=image.reshape(-1))),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[record % 10])),
        }
        writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
"""

# What somebody does with the export who has never heard of ElasticDL.
PREDICT = """
import json
import sys

sys.modules["elasticdl"] = None  # an import of it would fail
import keras
import numpy as np
import tensorflow as tf

wanted = {"image": tf.io.FixedLenFeature([28, 28], tf.float32)}
images = [tf.io.parse_single_example(r, wanted)["image"] for r in tf.data.TFRecordDataset(sys.argv[2])]
features = {"image": tf.stack(images) / 255.0}
program = tf.saved_model.load(sys.argv[1])
served = program.serve(features).numpy()
loaded = keras.saving.load_model(sys.argv[1] + "/model.keras")(features["image"]).numpy()
np.testing.assert_allclose(served, loaded, rtol=1e-4, atol=1e-4)
print(json.dumps(served.tolist()))
"""


LIST = """
import json, sys
from safetensors import safe_open
with safe_open(sys.argv[1], framework="numpy") as file:
    print(json.dumps(list(file.keys())))
"""

SERVE = """
import json, sys
sys.modules["elasticdl"] = None
import tensorflow as tf
program = tf.saved_model.load(sys.argv[1])
words = tf.ragged.constant([[10**12 + 3, 10**12 + 4], []], dtype=tf.int64)
print(json.dumps(program.serve({"user": tf.constant([1, 2], tf.int64), "words": words}).numpy().tolist()))
"""


def python(script: str, *arguments: str) -> str:
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    argv = [sys.executable, "-c", script, *arguments]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=True, timeout=240).stdout


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "PATIENCE_S", 240.0)  # TensorFlow alone takes seconds to load


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "digits.tfrecord"
    python(WRITE, str(path), str(RECORDS))
    return path


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, records: Path) -> Iterator[Job]:
    """A job of two workers, one of which is killed in the middle."""
    started = Jobs(tmp_path_factory.mktemp("killed"))
    yield train(started, "killed", records, 2, "--validation_data", str(records), faults="worker-1@5:computed=SIGKILL")
    started.end()


@pytest.fixture(scope="module")
def with_rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A hybrid job with rows on ps."""
    started = Jobs(tmp_path_factory.mktemp("hybrid"))
    yield train_rows(started, "hybrid")
    started.end()


def train_rows(jobs: Jobs, mode: str) -> Job:
    job = Job(jobs.home, mode)
    arguments = ["train", "--detach", "--job_name", mode, "--threads", "1", *ROWS, "--training_data", "made-up"]
    arguments += ["--validation_data", "made-up", "--num_epochs", "12", "--minibatch_size", "16", "--num_workers", "2"]
    arguments += ["--num_ps_pods", "2", "--ps_mode", mode, "--embedding_on_ps", "all", "--min_workers", "1"]
    arguments += ["--distribution_strategy", "ParameterServerStrategy", "--output", str(job.output)]
    return jobs.launch(job, arguments, "worker-1@20:computed=SIGKILL")


def train(jobs: Jobs, name: str, records: Path, workers: int, *options: str, faults: str = "") -> Job:
    job = Job(jobs.home, name)
    arguments = ["train", "--detach", "--job_name", name, "--threads", "1", *MODEL, "--training_data", str(records)]
    arguments += ["--num_workers", str(workers), "--min_workers", "1", "--max_workers", "2", "--num_epochs", "1"]
    arguments += ["--global_batch_size", str(BATCH), "--output", str(job.output), *options]
    return jobs.launch(job, arguments, faults)


@pytest.mark.timeout(600)
def test_two_workers_of_which_one_is_killed_have_the_bits_of_one_worker(jobs: Jobs, killed: Job, records: Path) -> None:
    disturbed = killed.digest()
    alone = train(jobs, "alone", records, 1)

    assert alone.digest() == disturbed
    assert "worker-lost" in killed.kinds()
    status = killed.document()
    assert (status["step"], status["records"]) == (STEPS, RECORDS)
    assert 0.0 <= status["metrics"]["accuracy"] <= 1.0


@pytest.mark.timeout(600)
def test_the_export_predicts_without_elasticdl_what_a_prediction_job_predicts(
    jobs: Jobs, killed: Job, records: Path, tmp_path: Path
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    killed.digest()
    served = json.loads(python(PREDICT, str(killed.output), str(records)))
    job = Job(jobs.home, "predicting")
    arguments = ["predict", "--detach", "--job_name", "predicting", "--threads", "1", *MODEL, "--num_workers", "1"]
    arguments += ["--prediction_data", str(records), "--checkpoint_dir_for_init", str(killed.output)]
    jobs.launch(job, [*arguments, "--output", str(tmp_path / "predictions")])

    assert job.result()["phase"] == "succeeded", job.story()
    predictions = pq.read_table(tmp_path / "predictions").sort_by("record")
    assert predictions["record"].to_pylist() == list(range(RECORDS))
    for ours, theirs in zip(predictions["prediction"].to_pylist(), served, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-3)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["hybrid", pytest.param("async", marks=pytest.mark.slow)])
def test_embeddings_of_keras_are_on_ps_and_survive_a_killed_worker(jobs: Jobs, with_rows: Job, mode: str) -> None:
    job = with_rows if mode == "hybrid" else train_rows(jobs, mode)

    result = job.result()
    assert (result["phase"], result["exit_code"]) == ("succeeded", 0), f"{result}\n{job.story()}"
    assert job.document()["metrics"]["auc"] > 0.8
    description = json.loads((job.output / "model.json").read_text())
    names = set(json.loads(python(LIST, str(job.output / "model.safetensors"))))
    assert names == {"dense/kernel", "dense/bias", "embedding/embeddings", "texts/ids", "texts/rows"}
    assert description["extra"]["program"] == "saved_model.pb"
    served = json.loads(python(SERVE, str(job.output)))
    assert len(served) == 2 and served[0] != served[1]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_without_ps_evaluates_the_rows_of_a_checkpoint_and_of_an_export_alike(jobs: Jobs, with_rows: Job) -> None:
    with_rows.digest()
    results = []
    for name, directory in (("checkpoint", with_rows.directory.root / "checkpoints"), ("export", with_rows.output)):
        job = Job(jobs.home, name)
        arguments = ["evaluate", "--detach", "--job_name", name, "--threads", "1", "--num_workers", "1", *ROWS]
        arguments += ["--validation_data", "made-up", "--checkpoint_dir_for_init", str(directory)]
        jobs.launch(job, arguments)
        assert job.result()["phase"] == "succeeded", job.story()
        results.append(job.document()["metrics"])

    assert results[0] == results[1]
    assert results[0]["auc"] > 0.8
