"""The numbers a job reports are exact: the loss of the last step, the mean of each epoch, every N-th point once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.cli.screens import job_summary
from elasticdl.jobs.local import WatchedLocalJob
from elasticdl.reporting.event_files import read_events, scalar_of
from elasticdl.spec.env import FAULTS
from tests import native
from tests.integration.counting import RECORDS as LEASED_RECORDS
from tests.integration.job import BATCH, EPOCHS, RECORDS, STEPS, STEPS_PER_EPOCH, Job, Jobs
from tests.integration.test_ps_leases import BATCHES
from tests.integration.test_ps_leases import start as start_leases

# A script that says the loss of each of its steps, where it runs alone.
SCRIPT = """
import json, sys
import torch
from torch import nn
import elasticdl.torch as elastic
from elasticdl.model.callbacks import Callback
import tiny

class Told(Callback):
    losses = []
    def on_step_end(self, step, loss):
        self.losses.append(loss)

torch.set_num_threads(1)
torch.manual_seed(3)
net = tiny.forward()
job = elastic.join(
    net, torch.optim.SGD(net.parameters(), lr=0.05), tiny.Examples(25, -1), global_batch_size=10, epochs=2, seed=5,
    logical_ranks=4, callbacks=[Told()],
)
for step in job:
    for features, labels in step:
        step.backward(nn.functional.cross_entropy(net(features), labels))
if len(sys.argv) > 1:
    open(sys.argv[1], "w").write(json.dumps(Told.losses))
"""


def curve_points(job: Job, tag: str) -> list[tuple[int, float]]:
    """All points of a curve in TensorBoard's files, in the order of the files."""
    points = []
    for path in sorted(job.directory.tensorboard.glob("*tfevents*"), key=lambda path: path.stat().st_ctime):
        for event in read_events(path):
            for value in event.summary.value:
                if value.tag == tag:
                    number = scalar_of(value)
                    assert number is not None
                    points.append((event.step, number))
    return points


def weighted_mean(losses: list[float], records: list[int]) -> float:
    total = 0.0
    for loss, count in zip(losses, records, strict=True):
        total += loss * count
    return total / sum(records)


@pytest.fixture(scope="session")
def undisturbed_losses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, float]]:
    """The loss of each step of `Jobs.train`, by one worker that nobody disturbs."""
    started = Jobs(tmp_path_factory.mktemp("losses"))
    job = started.train("losses", 1, "--log_steps", "1")
    job.digest()
    job.wait_gone()
    points = curve_points(job, "loss")
    assert [step for step, _ in points] == list(range(1, STEPS + 1))
    yield dict(points)
    started.end()


@pytest.mark.slow
def test_a_short_job_reports_the_losses_of_the_script_alone_with_any_number_of_workers(
    jobs: Jobs, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    (tmp_path / "tiny.py").write_text((Path(__file__).parent / "tiny.py").read_text())
    losses_file = tmp_path / "losses.json"
    environ = {name: value for name, value in os.environ.items() if name != FAULTS}
    subprocess.run([sys.executable, str(script), str(losses_file)], check=True, timeout=60, env=environ)
    losses: list[float] = json.loads(losses_file.read_text())
    assert len(losses) == 6
    means = [weighted_mean(losses[:3], [10, 10, 5]), weighted_mean(losses[3:], [10, 10, 5])]

    for workers in (1, 2, 3):
        job = Job(tmp_path, f"short-{workers}")
        job.slow.parent.mkdir(exist_ok=True)
        least = ["--workers", f"{workers}:{workers}"]
        jobs.launch(
            job, ["run", "--detach", "--job_name", job.name, *least, "--logical_ranks=4", "--threads=1", str(script)]
        )
        result = job.result()
        assert result["phase"] == "succeeded", job.story()
        assert (result["loss"], result["loss_step"]) == (losses[-1], 6)
        assert result["epoch_loss"] == {"epoch": 2, "step": 6, "loss": means[1], "records": 25}
        assert (result["records_per_epoch"], result["epochs"], result["records"]) == (25, 2, 50)
        job.wait_gone()
        assert curve_points(job, "loss") == [
            (step, float(np.float32(loss))) for step, loss in enumerate(losses, start=1)
        ]
        assert curve_points(job, "epoch/loss") == [(3, float(np.float32(means[0]))), (6, float(np.float32(means[1])))]
        assert [step for step, _ in curve_points(job, "learning_rate")] == [1, 2, 3, 4, 5, 6]
        reasons = [event["reason"] for event in job.events() if event["kind"] == "epoch-ended"]
        assert reasons == [f"epoch {n} of 2: mean loss {mean:.6g} over 25 records" for n, mean in enumerate(means, 1)]
        shown = job.document()
        assert (shown["loss"], shown["loss_step"], shown["epoch_loss"]["loss"]) == (losses[-1], 6, means[1])


def test_the_curve_is_complete_although_its_reporter_is_killed(
    jobs: Jobs, undisturbed_losses: dict[int, float]
) -> None:
    faults = "worker-0@41:applied=SIGKILL"
    job = jobs.train("reporter", 2, "--min_workers", "1", "--log_steps", "3", faults=faults, slow=True, pause_s=0.01)
    job.wait_event("worker-lost")
    job.hurry()

    assert_curve(job, undisturbed_losses, 3)


@pytest.mark.slow
def test_the_curve_is_complete_although_all_workers_are_replaced(
    jobs: Jobs, undisturbed_losses: dict[int, float]
) -> None:
    job = jobs.train("replaced", 2, "--min_workers", "1", "--log_steps", "1", slow=True, pause_s=0.03)
    before = job.wait_members(2, step=5)
    os.kill(before["worker-0"], signal.SIGKILL)
    job.wait(lambda s: any(w.id == "worker-2" and w.state == "member" for w in s.workers), "a newcomer is in")
    os.kill(before["worker-1"], signal.SIGKILL)
    job.wait_event("worker-lost")
    job.hurry()

    assert_curve(job, undisturbed_losses, 1)


@pytest.mark.slow
def test_the_curve_is_complete_although_the_master_is_killed(jobs: Jobs, undisturbed_losses: dict[int, float]) -> None:
    job = jobs.train("master", 2, "--min_workers", "2", "--log_steps", "1", slow=True, pause_s=0.01)
    for step in (20, 60):
        job.wait(lambda status, step=step: status.step >= step, f"step {step}")  # type: ignore[misc]
        before = len([kind for kind in job.kinds() if kind == "master-restarted"])
        job.kill_master()
        job.wait(lambda _, before=before: job.kinds().count("master-restarted") > before, "another master")  # type: ignore[misc]
    job.hurry()

    assert_curve(job, undisturbed_losses, 1)


@pytest.mark.slow
def test_a_resumed_job_reports_the_complete_epoch_in_which_it_was_stopped(
    jobs: Jobs, undisturbed_losses: dict[int, float]
) -> None:
    job = jobs.train("stopped", 1, slow=True, pause_s=0.02)
    job.wait(lambda status: status.step >= STEPS - STEPS_PER_EPOCH + 3, "the last epoch")
    job.stop()
    stopped = job.result()
    job.wait_gone()
    assert stopped["phase"] == "stopped" and stopped["loss_step"] == stopped["step"] < STEPS
    assert float(np.float32(stopped["loss"])) == undisturbed_losses[stopped["step"]]
    again = jobs.train("stopped", 1, "--resume")
    again.wait_gone()

    assert_end(again, undisturbed_losses)
    assert [step for step, _ in curve_points(again, "loss")] == list(range(1, STEPS + 1))


def assert_curve(job: Job, losses: dict[int, float], every: int) -> None:
    job.digest()
    job.wait_gone()
    points = curve_points(job, "loss")
    steps = range(every, STEPS + 1, every)
    assert [step for step, _ in points] == list(steps), job.story()
    assert [loss for _, loss in points] == [losses[step] for step in steps]
    assert [step for step, _ in curve_points(job, "epoch/loss")] == [STEPS_PER_EPOCH * n for n in range(1, EPOCHS + 1)]
    assert job.kinds().count("epoch-ended") == EPOCHS
    assert_end(job, losses)


def assert_end(job: Job, losses: dict[int, float]) -> None:
    result = job.result()
    assert (result["loss_step"], float(np.float32(result["loss"]))) == (STEPS, losses[STEPS])
    last = [losses[step] for step in range(STEPS - STEPS_PER_EPOCH + 1, STEPS + 1)]
    records = [BATCH] * (STEPS_PER_EPOCH - 1) + [RECORDS % BATCH]
    assert result["epoch_loss"]["loss"] == pytest.approx(weighted_mean(last, records), rel=1e-6)


def test_the_summary_of_a_job_that_ends_at_max_steps_has_its_number_of_records(jobs: Jobs) -> None:
    job = jobs.train("few", 1, "--max_steps", "12")  # 120 records of one epoch, though six were asked for
    result = job.result()

    assert (result["total_records"], result["epochs"], result["epoch_loss"]["records"]) == (120, 1, 120)
    status = WatchedLocalJob(job.directory).final_status()
    assert job_summary.format_records(status) == "120 trained = 120 records, none lost, none twice"
    assert status.epoch_loss is not None
    assert (
        job_summary.format_epoch_loss(status.epoch_loss, status.records_per_epoch)
        == f"{result['epoch_loss']['loss']:.4f}, mean of epoch 1 so far, 120 of 205 records"
    )


@pytest.mark.slow
def test_each_batch_of_leases_is_in_one_point_of_the_curve(jobs: Jobs) -> None:
    native.require()
    job = start_leases(jobs, "leased", "--log_steps", "4", faults="worker-0@9:pushed=SIGKILL")
    result: dict[str, Any] = job.result()
    assert result["phase"] == "succeeded", job.story()
    job.wait_gone()

    steps = [step for step, _ in curve_points(job, "loss")]
    assert steps == sorted(set(steps)) and steps[-1] == BATCHES
    assert [step // 4 for step in steps[:-1]] == sorted({step // 4 for step in steps[:-1]}), "one for each fourth step"
    assert job.kinds().count("epoch-ended") <= EPOCHS
    records = [event["reason"].split(" over ")[1] for event in job.events() if event["kind"] == "epoch-ended"]
    assert sum(int(text.split()[0].replace(",", "")) for text in records) == EPOCHS * LEASED_RECORDS
