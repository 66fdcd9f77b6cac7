"""Jobs with embeddings on ps and dense layers by all-reduce: each record is in the rows once, whatever happens."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests import native
from tests.integration.counting import FAR, RECORDS, WORDS
from tests.integration.job import EPOCHS, Job, Jobs

native.require()

BATCH = 20
STEPS = EPOCHS * RECORDS // BATCH
TIMES = np.array([len(range(word, RECORDS, WORDS)) for word in range(WORDS)]) * EPOCHS


def start(jobs: Jobs, name: str, *options: str, faults: str = "", slow: bool = False) -> Job:
    return jobs.start(
        name, "train", "--training_data", "made-up", "--num_epochs", str(EPOCHS), "--global_batch_size", str(BATCH),
        "--logical_ranks", "4", "--num_workers", "2", "--max_workers", "4", "--num_ps_pods", "2",
        "--embedding_on_ps", "all", *options, model="counting", faults=faults, slow=slow,
    )  # fmt: skip


def assert_each_record_counts_once(job: Job) -> None:
    result = job.result()
    assert result["phase"] == "succeeded", f"{result}\n{job.story()}"
    weights = load_file(job.output / "model.safetensors")
    order = np.argsort(FAR * np.arange(WORDS))

    np.testing.assert_allclose(weights["moved.weight"], np.repeat(TIMES[:, None] / BATCH, 2, axis=1), atol=1e-4)
    assert weights["own.stored.ids"].tolist() == (FAR * np.arange(WORDS))[order].tolist()
    np.testing.assert_allclose(weights["own.stored.rows"], np.repeat(TIMES[order, None] / BATCH, 3, axis=1), atol=1e-4)


@pytest.mark.parametrize("depth", [0, 2])
def test_each_record_is_in_the_rows_once(jobs: Jobs, depth: int) -> None:
    job = start(jobs, f"undisturbed-{depth}", "--pipeline_depth", str(depth))

    assert_each_record_counts_once(job)
    assert "on ps: moved by sgd, own by sgd" in job.log("worker-0")


@pytest.mark.parametrize("moment", ["computed", "reduced"])
def test_a_rank_that_another_worker_computes_again_counts_once(jobs: Jobs, moment: str) -> None:
    job = start(jobs, f"killed-{moment}", faults=f"worker-1@{STEPS // 2}:{moment}=SIGKILL")

    assert_each_record_counts_once(job)
    assert "worker-lost" in job.kinds()


def test_workers_that_join_find_the_rows(jobs: Jobs) -> None:
    job = start(jobs, "joined", slow=True)
    job.wait_members(2, step=3)
    job.scale(4)
    job.wait_members(4)
    job.hurry()

    assert_each_record_counts_once(job)
