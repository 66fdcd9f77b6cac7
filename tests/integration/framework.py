"""Scripts of other frameworks as elastic jobs: run them, disturb them, compare all workers with the script alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.integration.job import Job, Jobs

Tensors = dict[str, torch.Tensor]


def start_script(
    jobs: Jobs, script: Path, name: str, habit: str, workers: str = "1:2", *options: str, is_slow: bool = True
) -> Job:
    """Start a job of `script`, with 4 logical ranks. While it is slow each batch takes longer."""
    job = Job(jobs.home, name)
    job.slow.parent.mkdir(parents=True, exist_ok=True)
    if is_slow:
        job.slow.touch()
    return jobs.launch(
        job,
        ["run", "--detach", "--job_name", name, "--threads", "1", "--workers", workers, "--logical_ranks", "4",
         *options, str(script), habit, str(jobs.home / name), "--slow", str(job.slow)],
    )  # fmt: skip


def run_alone(home: Path, script: Path, habit: str) -> Tensors:
    """Runs the script without ElasticDL, with as many threads: sums in float64 depend on their number."""
    output = home / f"alone-{habit}"
    done = subprocess.run(
        [sys.executable, str(script), habit, str(output)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return load_file(f"{output}-worker-0.safetensors")


def replace_worker(job: Job, *, is_hurried: bool = True) -> None:
    """Kill a worker in the middle of the training; go on, as fast as it can, once another has taken its place."""
    pids = job.wait_members(2, step=9)
    os.kill(pids["worker-1"], signal.SIGKILL)
    job.wait_event("worker-lost")
    job.wait(lambda s: s.step >= 12 and len([w for w in s.workers if w.state == "member"]) == 2, "a replacement trains")
    if is_hurried:
        job.hurry()


def assert_replacement_changes_nothing(jobs: Jobs, script: Path, habit: str, *options: str) -> None:
    """A job of `script` that loses a worker and gets another ends with the tensors of the script alone."""
    job = start_script(jobs, script, habit, habit, "1:2", *options)
    replace_worker(job)
    job.result()
    job.wait_gone()

    assert_equal_outcomes(job, outcomes(jobs, habit), run_alone(jobs.home, script, habit))


def stop_and_resume(jobs: Jobs, job: Job, step: int = 11) -> None:
    """Stop a job in the middle of its training, resume it, and wait for its end."""
    job.wait_members(2, step=step)
    job.stop()
    assert job.result()["step"] >= step
    job.wait_gone()
    for path in jobs.home.glob(f"{job.name}-worker-*"):
        path.unlink()
    job.hurry()
    done = job.command("run", "--detach", "--resume", "--job_name", job.name)
    assert done.returncode == 0, done.stderr
    job.wait_gone()


def outcomes(jobs: Jobs, name: str) -> dict[str, Tensors]:
    """The tensors that each worker wrote at its end."""
    return {
        path.stem.removeprefix(f"{name}-"): load_file(path) for path in jobs.home.glob(f"{name}-worker-*.safetensors")
    }


def assert_equal_outcomes(job: Job, ended: dict[str, Tensors], expected: Tensors, workers: int = 2) -> None:
    """All workers ended with the tensors of the script alone, and one of them was the first."""
    result = job.result()
    assert result["phase"] == "succeeded", f"{result}\n{job.story()}"
    assert len(ended) == workers, job.story()
    for worker, tensors in ended.items():
        for key, value in expected.items():
            assert key == "first" or torch.equal(tensors[key], value), f"{worker}: {key} differs\n{job.story()}"
    assert sum(int(tensors["first"]) for tensors in ended.values()) == 1
