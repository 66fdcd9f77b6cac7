"""The same bits for any number of workers and wherever a worker dies."""

from __future__ import annotations

import pytest

from tests.integration.job import BATCH, EPOCHS, RECORDS, STEPS, Jobs

# A kill of each worker, one before and one after the sum is finished; all combinations in `make test-thorough`.
QUICK_KILLS = [("worker-0", "computed"), ("worker-1", "reduced")]
KILLS = [
    pytest.param(worker, moment, marks=() if (worker, moment) in QUICK_KILLS else pytest.mark.slow)
    for moment in ("begin", "computed", "reduced", "applied")
    for worker in ("worker-0", "worker-1")
]


@pytest.mark.parametrize("workers", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_any_number_of_workers_gives_the_same_bits(jobs: Jobs, undisturbed: str, workers: int) -> None:
    job = jobs.train("fixed", workers, "--min_workers", str(workers))

    assert job.digest() == undisturbed
    status = job.document()
    assert (status["step"], status["records"]) == (STEPS, EPOCHS * RECORDS)
    assert RECORDS % BATCH, "the last batch of an epoch is to be a short one"


@pytest.mark.parametrize(("worker", "moment"), KILLS)
def test_a_worker_killed_in_a_step_changes_nothing(jobs: Jobs, undisturbed: str, worker: str, moment: str) -> None:
    job = jobs.train("killed", 2, "--min_workers", "1", faults=f"{worker}@20:{moment}=SIGKILL")

    assert job.digest() == undisturbed
    lost = [e for e in job.events() if e["kind"] == "worker-lost"]
    assert [e["replica"] for e in lost] == [worker], job.story()
    assert "SIGKILL" in lost[0]["reason"]
    assert job.document()["records"] == EPOCHS * RECORDS
