"""Mixed precision, micro-batches and compiled models in jobs of a model file: the bits of an undisturbed run."""

from __future__ import annotations

import json

import pytest

from tests.integration.job import Job, Jobs, members

SLOW = pytest.mark.slow  # make test-scripts
KILL = "worker-1@12:reduced=SIGKILL"


def train(jobs: Jobs, name: str, workers: int, *options: str, model: str = "tiny", faults: str = "") -> Job:
    return jobs.train(name, workers, "--min_workers", "1", *options, model=model, slow=bool(faults), faults=faults)


def replace_worker(job: Job) -> None:
    """Once a worker was killed and another has taken its place, let the job go on as fast as it can."""
    lost = job.wait_event("worker-lost")
    assert "SIGKILL" in lost["reason"], job.story()
    job.wait(lambda status: len(members(status)) == 2, "a replacement trains")
    job.hurry()


@SLOW
def test_a_compiled_model_of_a_model_file_is_compiled_before_a_worker_joins(jobs: Jobs) -> None:
    options = ("--validation_data", "made-up", "--evaluation_epochs", "2")
    calm = train(jobs, "calm", 1, *options, model="tiny_compiled")
    expected = calm.digest()
    job = train(jobs, "compiled", 2, *options, model="tiny_compiled", faults=KILL)
    replace_worker(job)

    assert job.digest() == expected
    weights = json.loads((job.output / "model.json").read_text())
    assert weights["extra"]["program"] == "model.pt2", weights
