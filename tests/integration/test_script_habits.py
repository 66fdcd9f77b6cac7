"""Ordinary habits of PyTorch in a script: the job ends with the tensors of the script, or reports why it cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.framework import outcomes, replace_worker, run_alone, start_script, stop_and_resume
from tests.integration.job import Job, Jobs
from tests.waiting import until

SCRIPT = Path(__file__).parent / "scripts" / "habits.py"


def run(jobs: Jobs, name: str, habit: str, workers: str = "2:2", *options: str, slow: bool = False) -> Job:
    return start_script(jobs, SCRIPT, name, habit, workers, *options, is_slow=slow)


def alone(home: Path, habit: str) -> dict[str, torch.Tensor]:
    return run_alone(home, SCRIPT, habit)


def assert_same(job: Job, ended: dict[str, dict[str, torch.Tensor]], expected: dict[str, torch.Tensor]) -> None:
    result = job.result()
    assert result["phase"] == "succeeded", f"{result}\n{job.story()}"
    assert ended, job.story()
    for worker, tensors in ended.items():
        for key, value in expected.items():
            assert key == "first" or torch.equal(tensors[key], value), f"{worker}: {key} differs"


SLOW = pytest.mark.slow  # tests/unit/torch has the same habits without processes
MORE = ("scaler", "own-scheduler", "own-schedule", "average", "clip", "explicit", "micro")
ODD = ("complex", "tied", "mixed", "sparse")  # models


@pytest.mark.parametrize("habit", ["scheduler", *(pytest.param(habit, marks=SLOW) for habit in MORE)])
def test_a_killed_and_replaced_worker_changes_nothing(jobs: Jobs, habit: str) -> None:
    job = run(jobs, habit, habit, "1:2", slow=True)
    replace_worker(job)

    job.result()
    assert_same(job, outcomes(jobs, habit), alone(jobs.home, habit))


@SLOW
@pytest.mark.parametrize("habit", ODD)
def test_unusual_models_have_the_bits_of_one_worker_after_a_kill_and_a_resume(jobs: Jobs, habit: str) -> None:
    job = run(jobs, habit, habit, "1:2", "--guard_steps", "3", "--checkpoint_steps", "5", slow=True)
    replace_worker(job, is_hurried=False)
    stop_and_resume(jobs, job, step=15)

    assert_same(job, outcomes(jobs, habit), alone(jobs.home, habit))


@SLOW
@pytest.mark.parametrize(
    ("habit", "killed"),
    [("evaluate-first", "worker-0"), ("evaluate-processes", "worker-0"), ("evaluate-all", "worker-1")],
)
def test_evaluation_in_the_loop_changes_no_bits_even_if_its_worker_is_killed(
    jobs: Jobs, habit: str, killed: str
) -> None:
    job = run(jobs, habit, habit, "2:2", "--guard_steps", "4", slow=True)
    pids = job.wait_members(2, step=7)
    until("an evaluation", (jobs.home / f"{habit}-evaluating-{killed}").exists, tell=job.story)
    os.kill(pids[killed], signal.SIGKILL)
    job.wait_event("worker-lost")
    job.wait(lambda s: s.step >= 12 and len([w for w in s.workers if w.state == "member"]) == 2, "a replacement trains")
    job.hurry()

    job.result()
    job.wait_gone()
    assert_same(job, outcomes(jobs, habit), alone(jobs.home, "evaluate-none"))
    assert job.kinds().count("worker-lost") == 1 and "worker-leaving" not in job.kinds(), job.story()
    lines = [line.split() for line in (jobs.home / f"{habit}-evaluations.txt").read_text().splitlines()]
    steps = [int(step) for step, _ in lines]
    assert len({tuple(line) for line in lines}) == len(set(steps)), "two workers saw different models"
    missing = set(range(-3, 34, 3)) - set(steps)
    if habit == "evaluate-all":
        assert not missing, job.story()
    else:
        assert len(missing) <= 1 and len(steps) == len(set(steps)), (steps, job.story())


@pytest.mark.slow
def test_a_resumed_job_continues_with_the_learning_rate_of_its_scheduler(jobs: Jobs) -> None:
    job = run(jobs, "resumed", "scheduler", "1:2", slow=True)
    job.wait_members(2, step=14)
    job.stop()
    assert job.result()["step"] >= 14
    job.wait_gone()
    job.hurry()
    done = job.command("run", "--detach", "--resume", "--job_name", "resumed")
    assert done.returncode == 0, done.stderr

    job.wait_gone()
    assert_same(job, outcomes(jobs, "resumed"), alone(jobs.home, "scheduler"))


def failure(job: Job) -> str:
    result = job.result()
    assert result["phase"] == "failed", f"{result}\n{job.story()}"
    return str(result["reason"])


@pytest.mark.parametrize(
    ("habit", "expected"),
    [
        ("unknown-scheduler", "schedulers=scheduler"),
        pytest.param("stepped-twice", "was stepped by the script", marks=SLOW),
        pytest.param("frozen", "step 5: parameters or groups of the optimizer", marks=SLOW),
        pytest.param("clear", "the gradients were cleared before the update", marks=SLOW),
        pytest.param("exit-1", "exited with 'no good'", marks=SLOW),
    ],
)
def test_invalid_use_is_refused_with_the_fix(jobs: Jobs, habit: str, expected: str) -> None:
    assert expected in failure(run(jobs, habit, habit))


def test_the_guard_names_tensor_step_and_workers_of_diverging_replicas(jobs: Jobs) -> None:
    job = run(jobs, "parted", "parted", "2:2", "--guard_steps", "4")

    reason = failure(job)

    assert "before step 24" in reason and "2.bias" in reason
    assert "worker-0" in reason and "worker-1" in reason


@SLOW
def test_a_worker_that_stays_in_eval_mode_after_an_evaluation_is_reported(jobs: Jobs) -> None:
    reason = failure(run(jobs, "forgetting", "evaluate-forgetting", "2:2", "--guard_steps", "4"))

    assert "train() or eval() of 1, train() or eval() of 2" in reason and "call model.train()" in reason


@pytest.mark.slow
def test_workers_in_different_updates_are_reported(jobs: Jobs) -> None:
    reason = failure(run(jobs, "uneven", "uneven"))

    assert "the workers are in different updates" in reason and "must not depend on job.is_first" in reason


@pytest.mark.slow
def test_a_learning_rate_that_a_newcomer_does_not_have_is_reported_in_its_first_step(jobs: Jobs) -> None:
    job = run(jobs, "private", "private-rate", "1:2", slow=True)
    pids = job.wait_members(2, step=9)
    os.kill(pids["worker-1"], signal.SIGKILL)
    job.wait_event("worker-lost")

    assert "learning rate" in failure(job)


def stopped_at(jobs: Jobs, name: str, habit: str) -> tuple[dict[str, Any], dict[str, dict[str, torch.Tensor]], Job]:
    job = run(jobs, name, habit)
    result = job.result()
    job.wait_gone()
    assert result["phase"] == "succeeded", f"{result}\n{job.story()}"
    return result, outcomes(jobs, name), job


@pytest.mark.parametrize(
    ("habit", "steps", "reason"),
    [
        pytest.param("break", (10,), "left its training loop", marks=SLOW),
        pytest.param("break-norm", (10,), "left its training loop", marks=SLOW),
        ("break-one", (10,), "the script of worker-1 left its training loop"),
        pytest.param("break-between", (10,), "the script of worker-1 left its training loop", marks=SLOW),
        pytest.param("break-inside", (7,), "the script of worker-1 left its training loop", marks=SLOW),
        ("stop", (10, 11), "good enough"),
    ],
)
def test_leaving_the_loop_ends_the_job_with_the_same_state_in_all(
    jobs: Jobs, habit: str, steps: tuple[int, ...], reason: str
) -> None:
    result, ended, job = stopped_at(jobs, habit, habit)

    assert result["step"] in steps and reason in result["reason"], result
    assert len(ended) == 2, job.story()
    assert sorted(int(tensors["first"]) for tensors in ended.values()) == [0, 1]
    first, second = ended.values()
    assert int(first["step"]) == int(second["step"]) == result["step"]
    assert all(torch.equal(first[key], second[key]) for key in first if key != "first")
    summary = job.command("status", habit)
    assert reason in summary.stdout, summary.stdout


@SLOW
def test_sys_exit_ends_normally_and_runs_exit_functions(jobs: Jobs) -> None:
    job = run(jobs, "exit", "exit")

    assert (job.result()["phase"], job.result()["reason"]) == ("succeeded", "all steps are done")
    job.wait_gone()
    assert len(list(jobs.home.glob("exit-exited-worker-*"))) == 2


def test_reading_grad_before_it_is_complete_warns(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "early-clip", str(tmp_path / "early")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0 and "Use gradients after that loop" in done.stderr
