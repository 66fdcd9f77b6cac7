"""Mixed precision, micro-batches and compiled models in jobs of a model file: the bits of an undisturbed run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticdl.checkpoint import store
from tests.integration.job import Job, Jobs, members

SLOW = pytest.mark.slow
KILL = "worker-1@20:reduced=SIGKILL"


def train(
    jobs: Jobs, name: str, workers: int, *options: str, model: str = "tiny", faults: str = "", pause_s: float = 0.05
) -> Job:
    """Pauses give a second worker some seconds to join before the fault strikes it."""
    is_slow = bool(faults)
    return jobs.train(
        name, workers, "--min_workers", "1", *options, model=model, slow=is_slow, pause_s=pause_s, faults=faults
    )


def replace_worker(job: Job) -> None:
    """Waits until a killed worker is replaced, then lets the job run at full speed."""
    lost = job.wait_event("worker-lost")
    assert "SIGKILL" in lost["reason"], job.story()
    job.wait(lambda status: len(members(status)) == 2, "a replacement trains")
    job.hurry()


def scaler_of(job: Job) -> Any:
    """The state of the scaler in the last checkpoint of a job."""
    newest = store.read_newest(job.directory.root / "checkpoints")
    assert newest is not None
    return newest[0].meta["user_state"].get("scaler")


@pytest.mark.parametrize(
    ("precision", "faults"),
    [
        ("fp16", KILL),
        pytest.param("bf16", KILL, marks=SLOW),
        *(
            pytest.param("fp16", f"{who}=SIGKILL", marks=SLOW)
            for who in ("worker-0@20:computed", "worker-1@20:applied")
        ),
    ],
)
def test_a_killed_and_replaced_worker_changes_nothing_in_mixed_precision(
    jobs: Jobs, undisturbed: str, precision: str, faults: str
) -> None:
    options = ("--precision", precision, "--micro_batch_size", "2")
    calm = train(jobs, "calm", 1, *options)
    job = train(jobs, "killed", 2, *options, faults=faults)
    replace_worker(job)

    assert job.digest() == calm.digest() != undisturbed
    assert scaler_of(job) == scaler_of(calm)
    assert (scaler_of(job) is not None) == (precision == "fp16")


@SLOW
def test_a_resumed_job_continues_with_its_loss_scale(jobs: Jobs) -> None:
    options = ("--precision", "fp16", "--micro_batch_size", "2")
    calm = train(jobs, "calm", 1, *options)
    job = jobs.train("resumed", 2, "--min_workers", "1", *options, slow=True)
    job.wait_members(2, step=9)
    job.stop()
    assert job.result()["phase"] == "stopped", job.story()
    job.wait_gone()
    job.hurry()
    done = job.command("train", "--detach", "--resume", "--job_name", "resumed")
    assert done.returncode == 0, done.stderr
    job.wait_gone()

    assert job.digest() == calm.digest()
    assert scaler_of(job) == scaler_of(calm)


@SLOW
def test_a_compiled_model_of_a_model_file_is_compiled_before_a_worker_joins(jobs: Jobs) -> None:
    options = ("--validation_data", "made-up", "--evaluation_epochs", "2")
    calm = train(jobs, "calm", 1, *options, model="tiny_compiled")
    expected = calm.digest()
    job = train(jobs, "compiled", 2, *options, model="tiny_compiled", faults=KILL, pause_s=0.1)
    replace_worker(job)

    assert job.digest() == expected
    weights = json.loads((job.output / "model.json").read_text())
    assert weights["extra"]["program"] == "model.pt2", weights
