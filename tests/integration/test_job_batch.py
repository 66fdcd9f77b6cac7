"""The batch is scaled while a job trains: every record once, and the same bits for the same steps of change."""

from __future__ import annotations

import math
import os
import signal

import pytest

from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.scheduler.accounts import progress
from tests.integration.job import BATCH, EPOCHS, RECORDS, STEPS, STEPS_PER_EPOCH, Job, Jobs


def scale_batch(job: Job, scale: int) -> pb.JobStatus:
    done = job.command("scale", job.name, "--batch_scale", str(scale))
    assert done.returncode == 0, done.stderr
    return job.wait(lambda s: s.batch_scale == scale and s.batch_scales[-1].step >= 0, f"an update of {scale} batches")


@pytest.mark.slow
def test_a_batch_scaled_while_it_trains_has_the_bits_of_the_same_schedule_with_other_workers(
    jobs: Jobs, undisturbed: str
) -> None:
    options = ["--adaptive_batch", "adascale", "--validation_data", "made-up", "--evaluation_epochs", str(EPOCHS)]
    job = jobs.train("live", 2, "--min_workers", "2", *options, slow=True, pause_s=0.2)
    job.wait_members(2, step=4)

    scale_batch(job, 3)
    job.scale(3)
    job.wait_members(3)
    scale_batch(job, 2)
    job.hurry()
    digest = job.digest()

    assert digest != undisturbed
    status = job.document()
    assert (status["step"], status["records"]) == (STEPS, EPOCHS * RECORDS)
    changes = {change["step"]: change["scale"] for change in status["batch_scales"]}
    assert list(changes.values()) == [3, 2]
    assert STEPS / 3 < status["progress"] < STEPS, "an update of several batches is worth less than they are"
    assert status["metrics"]["accuracy"] > 0.7, "it has learned"

    schedule = ",".join(f"{step}={scale}" for step, scale in changes.items())
    again = jobs.train("planned", 1, *options, "--batch_schedule", schedule)
    assert again.digest() == digest
    assert again.document()["progress"] == status["progress"]


def test_a_scaled_job_whose_worker_is_killed_ends_with_the_same_bits(jobs: Jobs) -> None:
    options = ["--adaptive_batch", "linear", "--batch_schedule", "0=2,20=4,60=1", "--learning_rate", "0.003"]
    undisturbed = jobs.train("whole", 1, *options).digest()
    job = jobs.train("killed", 2, "--min_workers", "1", *options, faults="worker-1@25:computed=SIGKILL")

    assert job.digest() == undisturbed
    assert "worker-lost" in job.kinds("worker-1"), job.story()


@pytest.mark.slow
def test_after_the_loss_of_all_workers_a_change_is_repeated_at_its_step(jobs: Jobs) -> None:
    job = jobs.train("lost", 1, "--adaptive_batch", "sqrt", slow=True, pause_s=0.1)
    (worker,) = job.wait_members(1, step=4).values()
    before = scale_batch(job, 3)
    job.wait(lambda s: s.step > before.step + 3, "an update more")
    os.kill(worker, signal.SIGKILL)  # no checkpoint was written: it begins anew
    job.wait_event("worker-lost")
    job.hurry()
    digest = job.digest()

    (change,) = job.document()["batch_scales"]
    assert change["step"] == before.batch_scales[0].step
    planned = ["--adaptive_batch", "sqrt", "--batch_schedule", f"{change['step']}=3"]
    assert jobs.train("planned", 2, *planned).digest() == digest


@pytest.mark.slow
def test_a_checkpoint_contains_the_scale_of_the_batch(jobs: Jobs) -> None:
    job = jobs.train("first", 1, "--adaptive_batch", "sqrt", "--checkpoint_steps", "5", slow=True)
    job.wait_members(1, step=2)
    scale_batch(job, 4)
    job.wait(lambda s: s.step >= 12, "a few updates")
    job.stop()
    assert job.result()["phase"] == "stopped"
    job.wait_gone()

    job = jobs.train("first", 1, "--adaptive_batch", "sqrt", "--resume", slow=True)
    status = job.wait(lambda s: s.progress > 0, "that it goes on")
    assert status.batch_scale == 4
    scale_batch(job, 1)
    job.hurry()
    job.digest()
    assert job.document()["records"] == EPOCHS * RECORDS


@pytest.mark.slow
def test_a_running_job_reports_its_speeds_and_its_gradient_noise_to_the_scheduler(jobs: Jobs) -> None:
    job = jobs.train("told", 1, slow=True)
    job.wait(lambda s: bool(s.speeds), "a speed with one worker")
    job.scale(2)
    status = job.wait(lambda s: len(progress.parse_speed_samples(s)) >= 2, "a speed with two workers")
    noise = progress.parse_gradient_noise(status)
    job.hurry()
    job.digest()

    alone, together = progress.parse_speed_samples(status)[:2]
    assert (alone.nodes, alone.workers, alone.local_batch) == (1, 1, BATCH)
    assert (together.nodes, together.workers, together.local_batch) == (1, 2, BATCH // 2)
    assert 0 < together.compute_s < alone.compute_s < 5
    assert noise is not None and noise.gradient_variance > 0 and math.isfinite(noise.gradient_norm_sq)
    document = job.document()
    assert document["progress"] == STEPS == EPOCHS * STEPS_PER_EPOCH
    assert document["noise"]["variance"] > 0
    assert [speed["workers"] for speed in document["speeds"]][:2] == [1, 2]


@pytest.mark.slow
def test_a_fixed_batch_cannot_be_scaled(jobs: Jobs) -> None:
    job = jobs.train("fixed", 1, slow=True)
    job.wait_members(1)
    done = job.command("scale", job.name, "--batch_scale", "2")

    assert done.returncode != 0
    assert "--adaptive_batch" in done.stderr
