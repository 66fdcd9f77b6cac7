"""Scripts on a GPU, with workers that share it: the same bits as alone, also after a kill and a replacement."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.integration.framework import assert_equal_outcomes, outcomes, replace_worker, run_alone, start_script
from tests.integration.job import Jobs

SCRIPT = Path(__file__).parent / "scripts" / "gpu_habits.py"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@pytest.mark.parametrize("habit", ["plain", "bf16", "fp16", "compile", "loader", "micro"])
def test_a_killed_and_replaced_worker_changes_nothing(jobs: Jobs, habit: str) -> None:
    expected = run_alone(jobs.home, SCRIPT, habit)

    job = start_script(jobs, SCRIPT, habit, habit, "1:2", "--device", "cuda")
    replace_worker(job)
    job.wait_gone()

    assert int(expected["step"]) == 48
    assert_equal_outcomes(job, outcomes(jobs, habit), expected)
