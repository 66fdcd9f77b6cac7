"""Jobs with embeddings on ps and dense layers by all-reduce: each record is in the rows once, also after failures."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from elasticdl.storage.paths import StorePath
from tests import native
from tests.integration.counting import FAR, RECORDS, WORDS
from tests.integration.job import EPOCHS, Job, Jobs

native.require()

from elasticdl import descriptors  # noqa: E402
from elasticdl.checkpoint import manifest  # noqa: E402
from elasticdl.launcher.local import processes  # noqa: E402
from elasticdl.model.embeddings.restore import read_table_rows  # noqa: E402

BATCH = 20
STEPS = EPOCHS * RECORDS // BATCH
TIMES = np.array([len(range(word, RECORDS, WORDS)) for word in range(WORDS)]) * EPOCHS


def start(jobs: Jobs, name: str, *options: str, **how: Any) -> Job:
    return jobs.start(
        name, "train", "--training_data", "made-up", "--num_epochs", str(EPOCHS), "--global_batch_size", str(BATCH),
        "--logical_ranks", "4", "--num_workers", "2", "--max_workers", "4", "--num_ps_pods", "2",
        "--embedding_on_ps", "all", *options, model="counting", **how,
    )  # fmt: skip


def assert_each_record_counts_once(job: Job) -> None:
    result = job.result()
    assert result["phase"] == "succeeded", f"{result}\n{job.story()}"
    weights = load_file(job.output / "model.safetensors")
    order = np.argsort(FAR * np.arange(WORDS))

    np.testing.assert_allclose(weights["moved.weight"], np.repeat(TIMES[:, None] / BATCH, 2, axis=1), atol=1e-4)
    assert weights["own.stored.ids"].tolist() == (FAR * np.arange(WORDS))[order].tolist()
    np.testing.assert_allclose(weights["own.stored.rows"], np.repeat(TIMES[order, None] / BATCH, 3, axis=1), atol=1e-4)


@pytest.mark.parametrize("depth", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_each_record_is_in_the_rows_once(jobs: Jobs, depth: int) -> None:
    job = start(jobs, f"undisturbed-{depth}", "--pipeline_depth", str(depth))

    assert_each_record_counts_once(job)
    assert "on ps: moved by sgd, own by sgd" in job.log("worker-0")


def test_every_process_of_a_job_raises_its_descriptor_limit(jobs: Jobs) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))  # the launcher inherits it
    try:
        job = start(jobs, "few-descriptors", slow=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    job.wait_members(2)

    limits = {name: resource.prlimit(pid, resource.RLIMIT_NOFILE) for name, pid in job.living().items()}

    assert {"launcher", "master", "ps-0", "ps-1", "worker-0", "worker-1"} <= limits.keys()
    assert set(limits.values()) == {(min(hard, descriptors.MAX_DESCRIPTORS), hard)}


@pytest.mark.parametrize("moment", ["reduced", pytest.param("computed", marks=pytest.mark.slow)])
def test_a_rank_that_another_worker_recomputes_counts_once(jobs: Jobs, moment: str) -> None:
    job = start(jobs, f"killed-{moment}", faults=f"worker-1@{STEPS // 2}:{moment}=SIGKILL")

    assert_each_record_counts_once(job)
    assert "worker-lost" in job.kinds()


@pytest.mark.parametrize("checkpoint_steps", [pytest.param(1000, marks=pytest.mark.slow), 1])
def test_unreported_work_of_a_killed_worker_is_recomputed(jobs: Jobs, checkpoint_steps: int) -> None:
    options = ("--ps_backups", "1", "--checkpoint_steps", str(checkpoint_steps), "--timing", "heartbeat_timeout_s=5")
    job = start(jobs, f"undelivered-{checkpoint_steps}", *options, slow=True, pause_s=0.05)
    job.wait_members(2, step=3)
    living = job.living()

    os.kill(living["ps-1"], signal.SIGSTOP)  # what is sent to it will be lost with it
    waited = [job.document()["step"]]
    job.wait(lambda s: waited.append(s.step) or (len(waited) > 5 and len(set(waited[-5:])) == 1), "no step that ends")
    os.kill(living["worker-1"], signal.SIGKILL)
    os.kill(living["ps-1"], signal.SIGKILL)
    job.hurry()

    assert_each_record_counts_once(job)
    assert "worker-lost" in job.kinds() and "restored" not in job.kinds()


@pytest.mark.slow
def test_workers_that_join_use_the_rows_on_ps(jobs: Jobs) -> None:
    job = start(jobs, "joined", slow=True, pause_s=0.5)
    job.wait_members(2, step=1)
    job.scale(4)
    job.wait_members(4)
    job.hurry()

    assert_each_record_counts_once(job)


def count_updates(checkpoint: Path | StorePath, table: str) -> float:
    assert isinstance(checkpoint, Path)
    return float(read_table_rows(checkpoint, table)[1][:, 0].sum())


@pytest.mark.slow
def test_a_checkpoint_holds_exactly_the_updates_of_its_steps(jobs: Jobs) -> None:
    # Slow enough for each to be written before the next is due.
    job = start(jobs, "cut", "--checkpoint_steps", "7", "--keep_checkpoint_max", "20", slow=True, pause_s=0.04)
    assert_each_record_counts_once(job)
    checkpoints = manifest.list_checkpoints(job.directory.root / "checkpoints")

    assert [manifest.parse_step(path) for path in checkpoints] == [STEPS, *reversed(range(7, STEPS, 7))]
    for path in checkpoints:
        for table in ("moved", "own"):
            assert count_updates(path, table) == pytest.approx(manifest.parse_step(path), abs=1e-3), path


@pytest.mark.slow
def test_checkpoints_that_are_due_too_often_are_skipped(jobs: Jobs) -> None:
    job = start(jobs, "often", "--checkpoint_steps", "1", "--keep_checkpoint_max", "100")

    assert_each_record_counts_once(job)
    for path in manifest.list_checkpoints(job.directory.root / "checkpoints"):
        assert count_updates(path, "own") == pytest.approx(manifest.parse_step(path), abs=1e-3), path


@pytest.mark.slow
def test_a_stopped_job_keeps_exactly_the_updates_of_its_steps_and_resumes_with_them(jobs: Jobs) -> None:
    job = start(jobs, "stopped", slow=True, pause_s=0.1)
    job.wait_members(2, step=3)
    job.stop()
    step = job.result()["checkpoint_step"]

    assert 3 <= step < STEPS
    (path,) = manifest.list_checkpoints(job.directory.root / "checkpoints")
    assert count_updates(path, "own") == pytest.approx(step, abs=1e-3)
    job.wait_gone()

    again = start(jobs, "stopped", "--resume")

    assert_each_record_counts_once(again)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["export", "checkpoint"])
def test_the_result_predicts_without_ps(jobs: Jobs, source: str) -> None:
    trained = start(jobs, f"for-{source}")
    assert_each_record_counts_once(trained)
    path = trained.output if source == "export" else trained.directory.root / "checkpoints"
    job = jobs.start(
        f"from-{source}", "predict", "--prediction_data", "made-up", "--checkpoint_dir_for_init", str(path),
        "--num_workers", "1", model="counting",
    )  # fmt: skip

    assert job.result()["phase"] == "succeeded", job.story()
    table = pq.ParquetDataset(job.output).read().sort_by("record")
    expected = 5 * TIMES[np.arange(RECORDS) % WORDS] / BATCH
    assert table.column_names[0] == "record"
    np.testing.assert_allclose(table.column(1).to_numpy(), expected, atol=1e-3)


@pytest.mark.slow
def test_a_job_whose_launcher_and_master_were_killed_is_resumed_with_the_rows_it_had(jobs: Jobs) -> None:
    job = start(jobs, "pair", slow=True, pause_s=0.1)
    job.wait_members(2, step=5)
    job.kill_launcher_and_master()
    left = processes.find_replicas(job.directory)
    job.hurry()

    done = job.command("train", "--resume", "--detach", "--job_name", "pair")

    assert done.returncode == 0, done.stderr
    assert [process.replica for process in left] == ["ps-0", "ps-1", "worker-0", "worker-1"]
    assert not {process.pid for process in left} & {process.pid for process in processes.find_processes(job.directory)}
    assert_each_record_counts_once(job)
    job.wait_gone()
    assert processes.find_processes(job.directory) == []
