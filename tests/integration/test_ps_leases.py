"""Jobs whose whole model is on ps: each record is in the rows once, in every mode and after failures."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from elasticdl.rpc import elasticdl_pb2 as pb
from tests import native
from tests.integration.counting import FAR, RECORDS, WORDS
from tests.integration.job import EPOCHS, Job, Jobs

native.require()

BATCH = 5
BATCHES = EPOCHS * RECORDS // BATCH
TIMES = np.array([len(range(word, RECORDS, WORDS)) for word in range(WORDS)]) * EPOCHS


def start(jobs: Jobs, name: str, *options: str, mode: str = "async", ps: int = 2, **how: Any) -> Job:
    return jobs.start(
        name, "train", "--training_data", "made-up", "--num_epochs", str(EPOCHS), "--minibatch_size", str(BATCH),
        "--num_workers", "2", "--max_workers", "4", "--num_ps_pods", str(ps), "--ps_mode", mode,
        "--embedding_on_ps", "all", *options, model="counting", **how,
    )  # fmt: skip


def rows_of(job: Job, atol: float = 1e-4) -> np.ndarray[Any, Any]:
    result = job.result()
    assert result["phase"] == "succeeded", f"{result}\n{job.story()}"
    assert result["records"] == EPOCHS * RECORDS
    weights = load_file(job.output / "model.safetensors")
    order = np.argsort(FAR * np.arange(WORDS))
    np.testing.assert_allclose(weights["own.stored.rows"][:, 0], weights["moved.weight"][order, 0], atol=atol)
    moved: np.ndarray[Any, Any] = weights["moved.weight"][:, 0]
    return moved


def assert_each_record_counts_once(job: Job, share: float = 1 / BATCH) -> None:
    np.testing.assert_allclose(rows_of(job), TIMES * share, atol=1e-4, err_msg=job.story())


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("async", ()),
        pytest.param("async", ("--pipeline_depth=0",), marks=pytest.mark.slow),
        pytest.param("async", ("--max_staleness=1",), marks=pytest.mark.slow),
        ("local", ("--pull_every=3",)),
        ("sync", ("--grads_to_wait=1",)),
    ],
)
def test_each_record_is_in_the_rows_once(jobs: Jobs, mode: str, options: tuple[str, ...]) -> None:
    job = start(jobs, f"undisturbed-{mode}-{len(options)}", *options, mode=mode)

    assert_each_record_counts_once(job)


@pytest.mark.slow
def test_two_pushes_make_one_update_if_an_update_needs_two(jobs: Jobs) -> None:
    job = start(jobs, "sync-2", "--grads_to_wait=2", mode="sync")

    share = 1 / BATCH / 2
    rows = rows_of(job, atol=BATCH * share)
    # What is left at the end makes an update of its own, of one push: its records count twice as much.
    assert (rows >= TIMES * share - 1e-4).all() and (rows <= (TIMES + 2) * share).all()
    assert rows.sum() == pytest.approx(BATCHES / 2, abs=1.01)


@pytest.mark.parametrize("moment", ["pushed", pytest.param("computed", marks=pytest.mark.slow)])
def test_a_batch_that_another_worker_recomputes_counts_once(jobs: Jobs, moment: str) -> None:
    job = start(jobs, f"killed-{moment}", faults=f"worker-1@7:{moment}=SIGKILL")

    assert_each_record_counts_once(job)
    assert "worker-lost" in job.kinds()


def has_even_slots(ps_count: int, status: pb.JobStatus) -> bool:
    return sum(ps.slots - 1024 // ps_count in (0, 1) for ps in status.ps) == ps_count


def test_ps_come_and_go_while_workers_train(jobs: Jobs) -> None:
    job = start(jobs, "scaled", slow=True, pause_s=0.05)
    job.wait(lambda s: s.records > 50, "some records")
    for wish in ("3", "1"):
        done = job.command("scale", job.name, "--ps", wish)
        assert done.returncode == 0, done.stderr
        job.wait(
            partial(has_even_slots, int(wish)),
            f"even slots on {wish} ps",
        )
    job.hurry()

    assert_each_record_counts_once(job)
    assert "slots-moved" in job.kinds()


@pytest.mark.slow
def test_a_killed_ps_with_a_backup_loses_no_update(jobs: Jobs) -> None:
    job = start(jobs, "replicated", "--ps_backups=1", slow=True, pause_s=0.05)
    job.wait_event("backed-up")
    status = job.wait(lambda s: s.records > 50 and all(ps.backup for ps in s.ps), "copies of all slots")
    os.kill(status.ps[0].pid, signal.SIGKILL)
    job.wait_event("promoted")
    job.hurry()

    assert_each_record_counts_once(job)


@pytest.mark.slow
def test_a_killed_ps_is_restored_from_the_newest_checkpoint_and_reports_the_lost_updates(jobs: Jobs) -> None:
    job = start(jobs, "restored", "--checkpoint_steps=20", ps=1, slow=True, pause_s=0.05)
    job.wait_event("checkpoint")
    status = job.wait(lambda s: s.checkpoint_step >= 20 and s.step > s.checkpoint_step + 5, "a checkpoint and more")
    os.kill(status.ps[0].pid, signal.SIGKILL)
    reason = job.wait_event("restored")["reason"]
    job.hurry()
    rolled_back = re.search(r"([\d,]+) acknowledged updates are rolled back", reason)

    assert rolled_back is not None, reason
    lost = int(rolled_back[1].replace(",", ""))
    assert lost > 0
    assert rows_of(job).sum() == pytest.approx(BATCHES - lost, abs=1e-3)


@pytest.mark.slow
def test_a_killed_master_loses_no_update(jobs: Jobs) -> None:
    job = start(jobs, "masterless", slow=True, pause_s=0.05)
    job.wait(lambda s: s.records > 50, "some records")
    job.kill_master()
    job.wait_event("master-restarted")
    job.hurry()

    assert_each_record_counts_once(job)


@pytest.mark.slow
def test_a_stopped_job_resumes_where_it_was(jobs: Jobs) -> None:
    job = start(jobs, "stopped", slow=True, pause_s=0.05)
    job.wait(lambda s: s.records > 100, "some records")
    job.stop()
    assert job.result()["phase"] == "stopped", job.story()
    job.wait_gone()
    job.hurry()
    done = job.command("train", "--detach", "--resume", "--job_name", job.name)
    assert done.returncode == 0, done.stderr

    assert_each_record_counts_once(job)
