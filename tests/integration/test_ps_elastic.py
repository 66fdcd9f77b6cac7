"""Training continues while its ps come, go and die: each record is in the rows once, or the log reports the loss."""

from __future__ import annotations

import os
import re
import signal

import pytest

from elasticdl.rpc import elasticdl_pb2 as pb
from tests.integration.job import Job, Jobs
from tests.integration.test_ps_hybrid import assert_each_record_counts_once, start


def shares(status: pb.JobStatus) -> list[int]:
    return [ps.slots for ps in status.ps if ps.state == "serving"]


def scale_ps(job: Job, count: int) -> None:
    done = job.command("scale", job.name, "--ps", str(count))
    assert done.returncode == 0, done.stderr


def wait_shares(job: Job, count: int) -> pb.JobStatus:
    def is_so(status: pb.JobStatus) -> bool:
        owned = shares(status)
        return len(owned) == count and sum(owned) == 1024 and max(owned) - min(owned) <= 1

    return job.wait(is_so, f"{count} ps hold all slots")


def test_slots_move_while_workers_train(jobs: Jobs) -> None:
    job = start(jobs, "moves", slow=True, pause_s=0.1)
    job.wait_members(2, step=1)

    scale_ps(job, 3)
    wait_shares(job, 3)
    scale_ps(job, 1)
    wait_shares(job, 1)
    job.hurry()

    assert_each_record_counts_once(job)
    job.wait_gone()


def test_with_backups_a_ps_that_dies_loses_no_update(jobs: Jobs) -> None:
    job = start(jobs, "copies", "--ps_backups", "1", slow=True, pause_s=0.1)
    job.wait_members(2, step=1)
    status = job.wait(lambda s: [ps.backup for ps in s.ps] == ["ps-1", "ps-0"], "copies of all slots")

    os.kill(status.ps[0].pid, signal.SIGKILL)
    job.wait_event("promoted")
    job.kill_master()
    job.hurry()

    assert_each_record_counts_once(job)
    job.wait_gone()


@pytest.mark.slow
def test_a_preempted_ps_loses_no_update(jobs: Jobs) -> None:
    job = start(jobs, "preempted", slow=True, pause_s=0.1)
    status = wait_shares(job, 2)
    job.wait_members(2, step=1)

    os.kill(status.ps[1].pid, signal.SIGTERM)
    job.wait_event("ps-drained")
    job.hurry()

    assert_each_record_counts_once(job)


@pytest.mark.slow
def test_a_ps_that_dies_before_it_reports_a_move_does_not_undo_the_move(jobs: Jobs) -> None:
    job = start(jobs, "untold", "--num_ps_pods", "1", slow=True, pause_s=0.1, faults="ps-0@3:completed=SIGKILL")
    job.wait_members(2, step=1)

    scale_ps(job, 2)
    restored = job.wait_event("restored")
    wait_shares(job, 2)
    job.hurry()

    assert job.result()["phase"] == "succeeded", job.story()
    assert restored["reason"].startswith("512 slots of ps-0"), "the others had moved to ps-1"


@pytest.mark.slow
def test_without_backups_the_log_says_how_many_updates_are_rolled_back_to_which_checkpoint(jobs: Jobs) -> None:
    job = start(jobs, "rolled", "--checkpoint_steps", "20", slow=True, pause_s=0.1)
    job.wait_event("checkpoint")
    status = job.wait(lambda s: s.step >= 24, "some steps after the checkpoint")

    os.kill(status.ps[1].pid, signal.SIGKILL)
    reason = job.wait_event("restored")["reason"]
    job.hurry()

    assert job.result()["phase"] == "succeeded", job.story()
    message = re.fullmatch(
        r"512 slots of ps-1 from (\S+), (\d+) rows; (\d+) acknowledged updates are rolled back", reason
    )
    assert message is not None, reason
    assert message[1].endswith("/checkpoints/checkpoint-000000020")
    assert int(message[2]) > 0, "half of the words are in its slots"
    pushes = 4 * 3, 4 * 20  # of four logical ranks, in the steps since: three at least, and none after the next cut
    assert pushes[0] <= int(message[3]) < pushes[1]


@pytest.mark.slow
@pytest.mark.parametrize("ps", [1, 3])
def test_a_job_resumes_with_another_number_of_ps(jobs: Jobs, ps: int) -> None:
    job = start(jobs, f"resumed-{ps}", slow=True, pause_s=0.1)
    job.wait_members(2, step=3)
    job.stop()
    assert job.result()["phase"] == "stopped"
    job.wait_gone()

    job.hurry()
    again = job.command("train", "--resume", "--detach", "--job_name", job.name, "--num_ps_pods", str(ps))

    assert again.returncode == 0, again.stderr
    assert_each_record_counts_once(job)
    assert job.kinds().count("restored") == ps
