"""Whole jobs whose data, checkpoints and output are in an object store: the same bits as with local files."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from elasticdl.checkpoint import manifest
from elasticdl.storage.paths import StorePath
from tests import native
from tests.integration.commands import elasticdl
from tests.integration.job import ZOO, Job, Jobs, digest
from tests.integration.rows import ROWS
from tests.integration.test_ctr_report import CONFIG, clicks
from tests.integration.test_object_stores import FailTimes
from tests.s3 import Proxy

RECORDS, EPOCHS, BATCH = 205, 2, 10
STEPS = EPOCHS * -(-RECORDS // BATCH)


def make_csv() -> str:
    made_up = random.Random(5)
    lines = ["a,b,c,d,label"]
    for _ in range(RECORDS):
        values = [made_up.gauss(0, 1) for _ in range(4)]
        lines.append(",".join([*(f"{value:.6f}" for value in values), str(int(sum(values) > 0))]))
    return "\n".join(lines) + "\n"


@pytest.fixture
def data(bucket: StorePath) -> str:
    """The address of a CSV file in the store."""
    (bucket / "data.csv").write_bytes(make_csv().encode())
    return str(bucket / "data.csv")


@pytest.fixture(scope="module")
def local_digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bits of a run with local files that nobody disturbs."""
    home = tmp_path_factory.mktemp("local")
    (home / "data.csv").write_text(make_csv())
    jobs = Jobs(home)
    try:
        job = train(jobs, "local", str(home / "data.csv"), str(home / "local-output"))
        return job.digest()
    finally:
        jobs.end()


def train(jobs: Jobs, name: str, data: str, output: str, *options: str, slow: bool = False) -> Job:
    job = Job(jobs.home, name)
    if slow:
        job.slow.touch()
    return jobs.launch(job, [
        "train", "--detach", "--job_name", name, "--threads", "1", "--model_zoo", str(ZOO), "--model_def",
        "tiny_csv.forward", "--model_params", f"slow={job.slow};pause_s=0.05", "--output", output, "--training_data",
        data, "--num_epochs", str(EPOCHS), "--global_batch_size", str(BATCH), "--logical_ranks", "4", "--max_workers",
        "4", "--num_workers", "2", *options,
    ])  # fmt: skip


def assert_exported(job: Job, exported: StorePath, expected: str, directory: Path) -> None:
    result = job.result()
    assert (result["phase"], result["exit_code"]) == ("succeeded", 0), f"{result}\n{job.story()}"
    (exported / "model.safetensors").download(directory / "exported.safetensors")
    assert digest(directory / "exported.safetensors") == expected


def assert_no_secret_is_written(job: Job) -> None:
    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    files = [path for path in job.directory.root.rglob("*") if path.is_file()]
    assert files and not [path for path in files if secret in path.read_bytes()]


@pytest.mark.slow
def test_a_job_in_a_store_continues_from_its_checkpoint_after_all_workers_die_and_serves_its_model(
    jobs: Jobs, bucket: StorePath, data: str, local_digest: str, tmp_path: Path
) -> None:
    job = train(
        jobs, "stored", data, str(bucket / "model"), "--checkpoint_dir", str(bucket / "checkpoints"),
        "--checkpoint_steps", "5", slow=True,
    )  # fmt: skip
    job.wait(lambda status: status.step >= 12 and bool(status.checkpoint_path), "a checkpoint in the store")
    for pid in job.wait_members(2).values():
        os.kill(pid, signal.SIGKILL)
    job.wait_log(f"from {bucket}/checkpoints/checkpoint-")
    job.hurry()

    assert_exported(job, bucket / "model", local_digest, tmp_path)
    checkpoints = manifest.list_checkpoints(bucket / "checkpoints")
    assert len(checkpoints) == 3 and checkpoints[0].name == manifest.checkpoint_name(STEPS)
    assert not (job.directory.root / "checkpoints").exists()
    assert not [path for path in (Path.cwd(), tmp_path, job.directory.root) if (path / "s3:").exists()]
    assert job.document()["output"] == str(bucket / "model")
    assert_no_secret_is_written(job)

    common = ["--threads", "1", "--model_zoo", str(ZOO), "--model_def", "tiny_csv.forward", "--num_workers", "1"]
    common += ["--checkpoint_dir_for_init", str(bucket / "model")]
    evaluated = jobs.launch(Job(jobs.home, "evaluated"), [
        "evaluate", "--detach", "--job_name", "evaluated", "--validation_data", data, *common
    ])  # fmt: skip
    result = evaluated.result()
    assert result["phase"] == "succeeded", evaluated.story()
    predicted = jobs.launch(Job(jobs.home, "predicted"), [
        "predict", "--detach", "--job_name", "predicted", "--prediction_data", data, "--output",
        str(bucket / "predictions"), *common
    ])  # fmt: skip
    assert predicted.result()["phase"] == "succeeded", predicted.story()
    records: list[int] = []
    for name in (bucket / "predictions").list_files():
        (bucket / "predictions" / name).download(tmp_path / name)
        records += pq.read_table(tmp_path / name)["record"].to_pylist()
    assert sorted(records) == list(range(RECORDS))


@pytest.mark.slow
def test_a_stopped_job_is_resumed_from_the_store_alone(
    jobs: Jobs, bucket: StorePath, data: str, local_digest: str, tmp_path: Path
) -> None:
    places = [data, str(bucket / "model"), "--checkpoint_dir", str(bucket / "checkpoints")]
    first = train(jobs, "first", *places, slow=True)
    first.wait_members(2, step=12)
    first.stop()
    assert first.result()["phase"] == "stopped", first.story()
    assert manifest.list_checkpoints(bucket / "checkpoints")

    refused = Job(jobs.home, "other").invoke(
        "train", "--job_name", "other", "--model_zoo", str(ZOO), "--model_def", "tiny_csv.forward", "--training_data",
        data, "--checkpoint_dir", str(bucket / "checkpoints"),
    )  # fmt: skip
    assert refused.returncode == 2 and "of another run; go on from it with --resume" in refused.stderr

    second = train(jobs, "second", *places, "--resume")  # nothing of the first job is known to it

    assert_exported(second, bucket / "model", local_digest, tmp_path)
    assert f"from {bucket}/checkpoints/checkpoint-" in second.story()


@pytest.mark.slow
def test_a_store_that_replies_503_for_a_while_changes_nothing(
    jobs: Jobs, bucket: StorePath, data: str, local_digest: str, tmp_path: Path, s3: Proxy
) -> None:
    job = train(
        jobs, "unlucky", data, str(bucket / "model"), "--checkpoint_dir", str(bucket / "checkpoints"),
        "--checkpoint_steps", "10", slow=True,
    )  # fmt: skip
    job.wait_members(2, step=5)
    s3.rule = rule = FailTimes(15)
    job.hurry()

    assert_exported(job, bucket / "model", local_digest, tmp_path)
    assert rule.left == 0, job.story()
    assert "the store does not answer, trying again" in job.story()


@pytest.mark.parametrize(
    ("option", "address", "words"),
    [
        ("--output", "s3://no-such-bucket/x", "output (--output): there is no bucket 'no-such-bucket'"),
        ("--checkpoint_dir", "s3://no-such-bucket/x", "(--checkpoint_dir): there is no bucket 'no-such-bucket'"),
        ("--checkpoint_dir_for_init", "s3://no-such-bucket/x", "there is nothing at s3://no-such-bucket/x"),
        ("--training_data", "s3://no-such-bucket/x.csv", "s3://no-such-bucket/x.csv: no such file"),
        ("--output", "foo://bucket/x", "foo:// is not known; expected a path, or a URL that begins with one of s3://"),
        ("--training_data", "foo://bucket/x.csv", "foo://bucket/x.csv: no file system for this address"),
    ],
)
def test_a_missing_location_is_refused_before_the_launch(
    jobs: Jobs, bucket: StorePath, data: str, option: str, address: str, words: str
) -> None:
    job = Job(jobs.home, "refused")
    options = {"--output": str(bucket / "model"), "--training_data": data, option: address}

    done = job.invoke(
        "train", "--job_name", "refused", "--model_zoo", str(ZOO), "--model_def", "tiny_csv.forward",
        *(word for pair in options.items() for word in pair),
    )  # fmt: skip

    assert (done.returncode, words in done.stderr) == (2, True), done.stdout + done.stderr
    assert not job.directory.root.exists()
    assert set(bucket.list_files()) == {"data.csv"}


@pytest.mark.slow
def test_rows_of_ps_are_checkpointed_to_the_store_and_restored_by_another_number_of_ps(
    jobs: Jobs, bucket: StorePath, tmp_path: Path
) -> None:
    native.require()
    epochs, batch = 2, 50
    (bucket / "rows.csv").write_bytes(b"id,weight\n" + b"".join(b"%d,1\n" % row for row in range(ROWS)))

    def start(name: str, ps: int, *options: str) -> Job:
        job = Job(jobs.home, name)
        job.slow.touch()
        return jobs.launch(job, [
            "train", "--detach", "--job_name", name, "--threads", "1", "--model_zoo", str(ZOO), "--model_def",
            "rows.forward", "--model_params", f"slow={job.slow};pause_s=0.1", "--output", str(bucket / "model"),
            "--training_data", str(bucket / "rows.csv"), "--num_epochs", str(epochs), "--global_batch_size", str(batch),
            "--logical_ranks", "2", "--max_workers", "2", "--num_workers", "2", "--num_ps_pods", str(ps),
            "--embedding_on_ps", "all", "--checkpoint_dir", str(bucket / "checkpoints"), "--checkpoint_steps", "5",
            *options,
        ])  # fmt: skip

    first = start("first", 2)
    first.wait(lambda status: status.step >= 12, "some checkpoints")
    first.stop()
    assert first.result()["phase"] == "stopped", first.story()
    newest = manifest.list_checkpoints(bucket / "checkpoints")[0]
    assert isinstance(newest, StorePath)
    assert {name.rpartition("/")[2][:4] for name in newest.list_files() if name.startswith("ps/ps-")} == {
        "ps-0",
        "ps-1",
    }
    assert set(newest.list_files()) == {
        *manifest.read_manifest(newest / manifest.MANIFEST_FILE).files,
        manifest.MANIFEST_FILE,
    }

    second = start("second", 1, "--resume")
    second.hurry()
    result = second.result()
    assert (result["phase"], result["exit_code"]) == ("succeeded", 0), f"{result}\n{second.story()}"
    (bucket / "model" / "model.safetensors").download(tmp_path / "model.safetensors")
    seen = load_file(tmp_path / "model.safetensors")["seen.weight"][:, 0]
    np.testing.assert_allclose(seen, np.full(ROWS, epochs / batch), rtol=1e-5)


@pytest.mark.slow
def test_a_model_from_a_config_is_trained_with_its_report_in_the_store(bucket: StorePath, tmp_path: Path) -> None:
    native.require()
    clicks(tmp_path / "clicks.csv")
    (bucket / "clicks.csv").upload(tmp_path / "clicks.csv")
    config = CONFIG.replace("clicks.csv", str(bucket / "clicks.csv")) + f"output: {bucket}/model\n"
    (tmp_path / "ctr.yaml").write_text(config)

    shown = elasticdl(tmp_path, "train", "ctr.yaml", "--job_name=clicks")
    elasticdl(tmp_path, "ctr", "report", "clicks", "--repeats", "1", "--output", str(bucket / "report"))

    assert f"{tmp_path}/ctr-ctr/report/index.html" in shown
    assert {"model.json", "model.pt2", "preprocessor.json"} <= set((bucket / "model").list_files())
    page = (bucket / "report" / "index.html").read_text()
    assert f"{bucket}/model" in page and "elasticdl-" + str(os.getuid()) not in page
