"""Hugging Face's Trainer and loops for Accelerate: real jobs end with the tensors of the script alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.integration.framework import (
    assert_equal_outcomes,
    assert_replacement_changes_nothing,
    outcomes,
    run_alone,
    start_script,
    stop_and_resume,
)
from tests.integration.job import Jobs

SCRIPT = Path(__file__).parent / "scripts" / "huggingface_habits.py"


@pytest.mark.parametrize(
    "habit",
    [
        "plain",
        *(pytest.param(habit, marks=pytest.mark.slow) for habit in ("accelerate", "bf16", "accelerate-bf16")),
    ],
)
def test_a_killed_and_replaced_worker_changes_nothing(jobs: Jobs, habit: str) -> None:
    assert_replacement_changes_nothing(jobs, SCRIPT, habit)


@pytest.mark.slow
def test_one_worker_writes_the_checkpoints_of_the_trainer(jobs: Jobs) -> None:
    job = start_script(jobs, SCRIPT, "plain", "plain", "2:2", is_slow=False)
    job.result()
    job.wait_gone()
    run_alone(jobs.home, SCRIPT, "plain")

    elastic, alone = jobs.home / "plain", jobs.home / "alone-plain"
    names = [sorted(str(path.relative_to(root)) for path in root.rglob("*")) for root in (elastic, alone)]
    assert names[0] == names[1]
    weights = [load_file(root / "checkpoint-40" / "model.safetensors") for root in (elastic, alone)]
    assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())


@pytest.mark.slow
@pytest.mark.parametrize("habit", ["plain", "accelerate"])
def test_a_resumed_job_continues_in_the_middle_of_an_epoch(jobs: Jobs, habit: str) -> None:
    job = start_script(jobs, SCRIPT, "resumed", habit)
    stop_and_resume(jobs, job)

    assert_equal_outcomes(job, outcomes(jobs, "resumed"), run_alone(jobs.home, SCRIPT, habit))


@pytest.mark.slow
@pytest.mark.parametrize(("habit", "steps"), [("early", 16), ("accelerate-leave", 24)])
def test_leaving_the_loop_ends_the_job_after_the_same_step_in_all_workers(jobs: Jobs, habit: str, steps: int) -> None:
    job = start_script(jobs, SCRIPT, habit, habit, "2:2", is_slow=False)
    result = job.result()
    job.wait_gone()

    assert result["step"] == steps and "left its training loop" in result["reason"]
    assert_equal_outcomes(job, outcomes(jobs, habit), run_alone(jobs.home, SCRIPT, habit))


@pytest.mark.slow
def test_invalid_use_is_refused_with_the_fix(jobs: Jobs) -> None:
    job = start_script(jobs, SCRIPT, "token-count", "token-count", "2:2", is_slow=False)

    result = job.result()

    assert result["phase"] == "failed" and "include_num_input_tokens_seen" in result["reason"]
