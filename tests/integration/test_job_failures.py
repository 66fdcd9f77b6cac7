"""Jobs that cannot succeed report the reason and the right exit code, and keep their state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from elasticdl.checkpoint import manifest
from tests.integration.job import Jobs


def test_a_loss_that_is_not_finite_ends_the_job_after_a_checkpoint(jobs: Jobs) -> None:
    job = jobs.train("nan", 2, "--data_reader_params", "nan_at=17", "--min_workers", "2", "--no-shuffle")
    result = job.result()

    assert (result["phase"], result["exit_code"]) == ("failed", 1)
    # Record 17 is in the second batch of ten; logical rank 2 has its records 15, 16 and 17 or thereabouts.
    reason = re.search(r"nan in step (\d+) at logical rank (\d+)", result["reason"])
    assert reason is not None, result["reason"]
    assert reason[1] == "1"
    assert 0 <= int(reason[2]) < 4
    assert result["checkpoint_step"] == 1, "the state before the bad step"
    assert (job.directory.root / "checkpoints" / "checkpoint-000000001").is_dir()
    assert not (job.output / "model.safetensors").exists()
    job.wait_gone()


def test_workers_that_always_fail_use_up_the_budget(jobs: Jobs) -> None:
    job = jobs.train(
        "budget", 1, "--failure_budget", "1", "--timing", "relaunch_backoff_s=0.1", params="failing=true"
    )  # fmt: skip
    result = job.result()

    assert (result["phase"], result["exit_code"]) == ("failed", 1)
    assert "workers failed 2 times, 1 are allowed" in result["reason"]
    assert "this model always fails" in result["reason"]
    assert job.kinds().count("worker-lost") == 2
    job.wait_gone()


def test_an_invalid_model_fails_the_job_and_is_not_retried(jobs: Jobs) -> None:
    job = jobs.train("wrong", 2, function="no_module")
    result = job.result()

    assert (result["phase"], result["exit_code"]) == ("failed", 2)
    assert "tiny.py: no_module: expected" in result["reason"]
    assert "Received: 'no module'" in result["reason"]
    assert set(job.kinds()) & {"worker-joined", "round-entered"} == set()
    job.wait_gone()


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_exception_of_a_model_costs_only_one_step(
    jobs: Jobs, undisturbed: str, tmp_path: Path, workers: int
) -> None:
    broken = tmp_path / "broken"
    job = jobs.train("once", workers, slow=True, params=f"broken={broken}")
    pids = job.wait_members(workers, step=3)
    broken.write_text("once")
    event = job.wait_event("step-retried")
    assert "RuntimeError: this model is broken; it is computed again" in event["reason"]
    assert job.wait_members(workers, step=event["step"] + 2) == pids, "by the same processes"
    job.hurry()

    assert job.digest() == undisturbed
    assert "worker-lost" not in job.kinds()


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_model_that_fails_again_ends_the_job_with_its_state_and_it_can_be_resumed(
    jobs: Jobs, undisturbed: str, tmp_path: Path, workers: int
) -> None:
    broken = tmp_path / "broken"
    job = jobs.train(
        "again",
        workers,
        "--failure_budget",
        "1",
        "--timing",
        "relaunch_backoff_s=0.1",
        slow=True,
        params=f"broken={broken}",
    )
    job.wait_members(workers, step=3)
    broken.write_text("for ever")
    result = job.result()

    assert (result["phase"], result["exit_code"]) == ("failed", 1)
    assert "this model is broken" in result["reason"]
    checkpoint = manifest.find_newest(job.directory.root / "checkpoints")
    assert checkpoint is not None and (manifest.parse_step(checkpoint) or 0) >= 3, job.story()
    assert (
        f"the state of step {manifest.parse_step(checkpoint)} is in {checkpoint}: resume from it with --resume"
        in result["reason"]
    )
    job.wait_gone()
    broken.unlink()
    job.hurry()
    again = job.command("train", "--resume", "--detach", "--job_name", "again")
    assert again.returncode == 0, again.stderr
    assert job.digest() == undisturbed
