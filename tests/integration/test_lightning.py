"""Lightning's Trainer with ElasticStrategy: real jobs end with the tensors of the script alone."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from tests.integration.framework import (
    assert_equal_outcomes,
    assert_replacement_changes_nothing,
    outcomes,
    run_alone,
    start_script,
    stop_and_resume,
)
from tests.integration.job import Jobs

SCRIPT = Path(__file__).parent / "scripts" / "lightning_habits.py"


@pytest.mark.parametrize(
    "habit", ["plain", *(pytest.param(habit, marks=pytest.mark.slow) for habit in ("plateau", "bf16", "fp16", "steps"))]
)
def test_a_killed_and_replaced_worker_changes_nothing(jobs: Jobs, habit: str) -> None:
    assert_replacement_changes_nothing(jobs, SCRIPT, habit)


def test_one_worker_writes_checkpoints_and_the_log(jobs: Jobs) -> None:
    job = start_script(jobs, SCRIPT, "plain", "plain", "2:2", is_slow=False)
    job.result()
    job.wait_gone()
    expected = run_alone(jobs.home, SCRIPT, "plain")

    assert_equal_outcomes(job, outcomes(jobs, "plain"), expected)
    names = [sorted(p.name for p in (jobs.home / f"{run}-checkpoints").iterdir()) for run in ("plain", "alone-plain")]
    assert names[0] == names[1]
    logs = [(jobs.home / run / "lightning_logs" / "run" / "metrics.csv") for run in ("plain", "alone-plain")]
    rows = [list(csv.DictReader(path.read_text().splitlines())) for path in logs]
    assert rows[0] == rows[1]


@pytest.mark.slow
def test_a_resumed_job_continues_in_the_middle_of_an_epoch(jobs: Jobs) -> None:
    job = start_script(jobs, SCRIPT, "resumed", "plain")
    stop_and_resume(jobs, job)

    assert_equal_outcomes(job, outcomes(jobs, "resumed"), run_alone(jobs.home, SCRIPT, "plain"))


@pytest.mark.slow
def test_early_stopping_ends_the_job_after_the_same_step_in_all_workers(jobs: Jobs) -> None:
    job = start_script(jobs, SCRIPT, "early", "early", "2:2", is_slow=False)
    result = job.result()
    job.wait_gone()
    ended, expected = outcomes(jobs, "early"), run_alone(jobs.home, SCRIPT, "early")

    assert result["step"] == 16 and "left its training loop" in result["reason"]
    assert_equal_outcomes(job, ended, expected)
    assert torch.equal(expected["position"], torch.tensor([16, 2, 16]))


@pytest.mark.slow
def test_invalid_use_is_refused_with_the_fix(jobs: Jobs) -> None:
    job = start_script(jobs, SCRIPT, "accumulate", "accumulate", "2:2", is_slow=False)

    result = job.result()

    assert result["phase"] == "failed" and "global_batch_size=2 * batch_size" in result["reason"]
