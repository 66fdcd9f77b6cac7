"""Evaluation, prediction, a user's script, and training without a fixed order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from elasticdl.spec.env import FAULTS
from tests.integration.job import BATCH, EPOCHS, RECORDS, STEPS, Job, Jobs, digest

SCRIPT = Path(__file__).parent / "script.py"
VALIDATION = 150


def evaluate(jobs: Jobs, name: str, checkpoint: Path, **how: Any) -> Job:
    return jobs.start(
        name, "evaluate", "--validation_data", "made-up", "--checkpoint_dir_for_init", str(checkpoint),
        "--minibatch_size", "5", "--shard_records", "10", "--num_workers", "2",
        "--data_reader_params", f"records={VALIDATION}", **how,
    )  # fmt: skip


def test_an_evaluation_that_loses_a_worker_measures_the_same(jobs: Jobs, trained: Path) -> None:
    expected = evaluate(jobs, "calm", trained).result()
    job = evaluate(jobs, "killed", trained, slow=True, pause_s=0.1)
    status = job.wait(lambda s: s.shards_done >= 2 and len(worker_pids(s)) == 2, "some shards are done")
    os.kill(worker_pids(status)[0], signal.SIGKILL)
    job.wait_event("worker-lost")
    job.hurry()
    result = job.result()

    assert (result["phase"], expected["phase"]) == ("succeeded", "succeeded"), job.story()
    assert result["metrics"] == pytest.approx(expected["metrics"], rel=1e-12)
    assert result["records"] == expected["records"] == VALIDATION


@pytest.mark.slow
def test_an_evaluation_that_loses_its_master_counts_no_record_twice(jobs: Jobs, trained: Path) -> None:
    expected = evaluate(jobs, "calm", trained).result()
    job = evaluate(jobs, "masterless", trained, slow=True, pause_s=0.1)
    for done in (2, 5):
        job.wait(lambda s, done=done: s.shards_done >= done, f"{done} shards are done")  # type: ignore[misc]
        job.kill_master()
    job.hurry()
    result = job.result()

    assert result["phase"] == "succeeded", job.story()
    assert result["metrics"] == pytest.approx(expected["metrics"], rel=1e-12)
    assert result["records"] == VALIDATION
    assert "worker-lost" not in job.kinds()


def test_every_record_is_predicted_once_though_a_worker_dies(jobs: Jobs, trained: Path) -> None:
    job = jobs.start(
        "predicted", "predict", "--prediction_data", "made-up", "--checkpoint_dir_for_init", str(trained),
        "--minibatch_size", "5", "--shard_records", "10", "--num_workers", "2", slow=True, pause_s=0.1,
    )  # fmt: skip
    status = job.wait(lambda s: s.shards_done >= 2 and len(worker_pids(s)) == 2, "some shards are done")
    os.kill(worker_pids(status)[0], signal.SIGKILL)
    job.wait_event("worker-lost")
    job.hurry()
    result = job.result()

    assert result["phase"] == "succeeded", job.story()
    predicted = [record for file in sorted(job.output.glob("*.parquet")) for record in pq.read_table(file)["record"]]
    assert [int(record.as_py()) for record in predicted] == list(range(RECORDS))
    assert [path.name for path in job.output.iterdir() if path.name.startswith(".")] == []


def test_an_evaluation_during_training_uses_exactly_the_weights_of_its_step(jobs: Jobs) -> None:
    job = jobs.train(
        "evaluated", 2, "--min_workers", "2", "--validation_data", "made-up", "--evaluation_steps", "10",
        "--checkpoint_steps", "10", "--keep_checkpoint_max", "20", "--shard_records", "50",
    )  # fmt: skip
    assert job.result()["phase"] == "succeeded", job.story()
    measured = {e["step"]: e["reason"] for e in job.events() if e["kind"] == "evaluation"}
    assert set(measured) >= {10, 20, STEPS}, measured
    # Written in the background: of steps that follow each other fast only the newest is.
    written = {int(path.name.rpartition("-")[2]): path for path in (job.directory.root / "checkpoints").iterdir()}
    step = min(written.keys() & measured.keys())
    again = jobs.start(
        "again", "evaluate", "--validation_data", "made-up", "--checkpoint_dir_for_init", str(written[step]),
        "--num_workers", "1",
    ).result()  # fmt: skip

    assert set(again["metrics"]) == {"loss", "accuracy"}
    for name, value in again["metrics"].items():
        assert f"{name} {value:.6g}" in measured[step], f"{measured[step]} is not {again['metrics']}"


@pytest.mark.slow
def test_early_stopping_ends_all_workers_after_the_same_step(jobs: Jobs) -> None:
    job = jobs.train(
        "early", 2, "--min_workers", "2", "--validation_data", "made-up", "--evaluation_steps", "5",
        slow=True, model="stopping",
    )  # fmt: skip
    result = job.result()

    assert (result["phase"], result["exit_code"]) == ("succeeded", 0), job.story()
    assert result["step"] < STEPS
    assert "has not improved" in result["reason"]
    assert result["checkpoint_step"] == result["step"]
    job.wait_gone()  # the last line of a log is written after the end
    ends = {line.partition("exit reason")[2] for w in ("worker-0", "worker-1") for line in job.log(w).splitlines()[-1:]}
    assert len(ends) == 1 and "has not improved" in ends.pop()


@pytest.mark.slow
def test_training_without_a_fixed_order_learns(jobs: Jobs) -> None:
    job = jobs.train("plain", 3, "--min_workers", "3", "--no-reproducible")
    result = job.result()

    assert result["phase"] == "succeeded", job.story()
    assert result["records"] == EPOCHS * RECORDS
    assert result["loss"] < 0.9 < 1.0986, "less than the loss of a guess among three"


@pytest.mark.slow
def test_a_script_gives_the_same_alone_and_as_a_job(jobs: Jobs, tmp_path: Path) -> None:
    alone, elastic = tmp_path / "alone.safetensors", tmp_path / "elastic.safetensors"
    argv = [sys.executable, str(SCRIPT), str(alone), str(EPOCHS), str(BATCH)]
    subprocess.run(argv, check=True, timeout=60, env={k: v for k, v in os.environ.items() if k != FAULTS})
    job = Job(tmp_path, "script")
    jobs.launch(
        job,
        ["run", "--detach", "--job_name", "script", "--workers", "1:2", "--logical_ranks", "4", "--threads", "1",
         str(SCRIPT), str(elastic), str(EPOCHS), str(BATCH)],
        faults="worker-1@30:computed=SIGKILL",
    )  # fmt: skip

    assert job.result()["phase"] == "succeeded", job.story()
    assert digest(elastic) == digest(alone)


def worker_pids(status: Any) -> list[int]:
    return [worker.pid for worker in status.workers if worker.state == "member"]
