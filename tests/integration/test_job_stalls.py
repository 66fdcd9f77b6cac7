"""Workers that send heartbeats but finish no step are detected and replaced, or end the job with a clear reason."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.job import STEPS, Jobs
from tests.waiting import until

STALL = ("--stall_timeout", "6", "--timing", "relaunch_backoff_s=0.05")


def test_a_deadlocked_worker_writes_its_stacks_and_is_replaced_without_changing_bits(
    jobs: Jobs, tmp_path: Path
) -> None:
    calm = jobs.train("calm", 2, model="deadlock", params="at=-1")
    job = jobs.train("once", 2, *STALL, model="deadlock", params=f"who={tmp_path / 'chosen'}")
    until("the loss", lambda: "worker-lost" in job.kinds(), 300.0, tell=job.story)
    result = job.result()

    assert result["phase"] == "succeeded", job.story()
    assert (result["step"], result["workers_failed"]) == (STEPS, 1)
    (noticed,) = [event for event in job.events() if event["kind"] == "worker-stalled"]
    assert "has been blocked for" in noticed["reason"]
    (lost,) = [event for event in job.events() if event["kind"] == "worker-lost"]
    assert lost["replica"] == noticed["replica"], "the one that did not arrive, and no other"
    assert "made no progress: has been blocked for" in lost["reason"]
    assert lost["at"] - noticed["at"] >= 2.0
    log = job.log(lost["replica"])
    assert "stacks of all threads" in log
    assert "in wait_for_ever" in log
    assert "in hold" in log, "all threads"
    assert job.digest() == calm.digest()


@pytest.mark.slow
def test_a_job_whose_only_worker_deadlocks_while_it_starts_continues_with_another(jobs: Jobs, tmp_path: Path) -> None:
    options = ("--stall_timeout", "3", "--timing", "relaunch_backoff_s=0.05")
    job = jobs.train("starting", 1, *options, model="deadlock", params=f"who={tmp_path / 'chosen'};at=1")
    result = job.result()

    assert (result["phase"], result["step"]) == ("succeeded", STEPS), job.story()
    (lost,) = [event for event in job.events() if event["kind"] == "worker-lost"]
    assert lost["replica"] == "worker-0"
    assert "made no progress: is starting for" in lost["reason"] and "has been blocked for" in lost["reason"]
    assert "in wait_for_ever" in job.log("worker-0")


def test_a_job_whose_only_worker_deadlocks_while_it_holds_the_gil_continues_with_another(
    jobs: Jobs, tmp_path: Path
) -> None:
    options = ("--stall_timeout", "3", "--timing", "relaunch_backoff_s=0.05", "--checkpoint_steps", "5")
    job = jobs.train("native", 1, *options, model="deadlock", params=f"who={tmp_path / 'chosen'};at=60;native=true")
    result = job.result()

    assert (result["phase"], result["step"]) == ("succeeded", STEPS), job.story()
    (lost,) = [event for event in job.events() if event["kind"] == "worker-lost"]
    assert lost["replica"] == "worker-0"
    assert "made no progress: has sent no heartbeat for" in lost["reason"]
    assert "in wait_for_ever" in job.log("worker-0")


@pytest.mark.slow
def test_a_job_whose_new_workers_all_deadlock_fails_when_the_budget_is_spent(jobs: Jobs) -> None:
    job = jobs.train(
        "others", 2, *STALL, "--failure_budget", "1", "--num_epochs", "1000", "--checkpoint_steps", "50",
        model="deadlock", params="who=others",
    )  # fmt: skip
    until("the second failure", lambda: job.kinds().count("worker-lost") >= 2, 300.0, tell=job.story)
    result = job.result(300.0)

    assert (result["phase"], result["exit_code"]) == ("failed", 1), job.story()
    assert "workers failed 2 times, 1 are allowed" in result["reason"]
    assert "made no progress: has been blocked for" in result["reason"]
    lost = {event["replica"] for event in job.events() if event["kind"] == "worker-lost"}
    assert "worker-0" not in lost, job.story()
    job.wait_gone()


@pytest.mark.slow
def test_a_job_whose_workers_all_deadlock_is_retried_from_its_checkpoint_then_fails(jobs: Jobs) -> None:
    job = jobs.train(
        "all", 2, *STALL, "--failure_budget", "1", "--checkpoint_steps", "5", model="deadlock", params="who=all;at=60"
    )
    until("the second failure", lambda: job.kinds().count("worker-lost") >= 2, 300.0, tell=job.story)
    result = job.result(300.0)

    assert (result["phase"], result["exit_code"]) == ("failed", 1), job.story()
    assert "workers failed 2 times, 1 are allowed" in result["reason"]
    assert "its stacks are in" in result["reason"]
    assert result["checkpoint_step"] >= 5
    lost = [event["replica"] for event in job.events() if event["kind"] == "worker-lost"]
    assert set(lost[:2]) == {"worker-0", "worker-1"}, "both, as one failure"
    assert all("in wait_for_ever" in job.log(worker) for worker in lost[:2])
    assert "state of step" in job.log("worker-2") + job.log("worker-3"), "from the checkpoint"
    job.wait_gone()


def test_a_hung_master_is_replaced_and_the_job_continues(jobs: Jobs) -> None:
    job = jobs.train("frozen-master", 2, "--timing", "master_stall_timeout_s=3", slow=True)
    job.wait_members(2, step=2)
    master = job.record().master
    assert master is not None
    os.kill(master.pid, signal.SIGSTOP)

    restarted = job.wait_event("master-restarted")
    job.hurry()
    result = job.result()
    assert (result["phase"], result["master_restarts"]) == ("succeeded", 1), job.story()
    assert f"process {master.pid}" not in restarted["reason"]
    assert f"the master (pid {master.pid}) is stuck: it is killed" in job.log("launcher")
    assert result["workers_failed"] == 0
    job.wait_gone()


def test_a_hung_launcher_is_replaced_and_launches_again(jobs: Jobs) -> None:
    job = jobs.train("frozen-launcher", 2, "--timing", "master_stall_timeout_s=3", slow=True)
    pids = job.wait_members(2, step=2)
    launcher = job.record().launcher
    os.kill(launcher.pid, signal.SIGSTOP)
    os.kill(pids["worker-1"], signal.SIGKILL)

    until("another launcher", lambda: job.record().launcher.pid != launcher.pid, 60.0, tell=job.story)
    job.wait_members(2)
    job.hurry()
    result = job.result()
    assert (result["phase"], result["master_restarts"]) == ("succeeded", 0), job.story()
    assert "the launcher has not answered for 3 s: killing and replacing it" in job.log("master")
    job.wait_gone()


@pytest.mark.slow
def test_a_master_writes_its_stacks_on_request_and_continues(jobs: Jobs) -> None:
    job = jobs.train("asked-master", 1, slow=True)
    pids = job.wait_members(1, step=2)
    master = job.record().master
    assert master is not None
    for pid in (master.pid, *pids.values()):
        os.kill(pid, signal.SIGQUIT)
    until("stacks in both logs", lambda: all("most recent call first" in job.log(r) for r in ("master", *pids)))
    job.hurry()
    assert job.result()["phase"] == "succeeded", job.story()


@pytest.mark.slow
def test_an_evaluation_whose_worker_deadlocks_is_finished_by_another(jobs: Jobs, tmp_path: Path) -> None:
    calm = jobs.train("trained", 2, model="deadlock", params="at=-1")
    assert calm.result()["phase"] == "succeeded", calm.story()
    job = jobs.start(
        "evaluated", "evaluate", "--validation_data", "made-up", "--checkpoint_dir_for_init", str(calm.output),
        "--num_workers", "1", "--shard_records", "50", "--minibatch_size", "5",
        "--timing", "lease_s=5;relaunch_backoff_s=0.05", model="deadlock", params=f"who={tmp_path / 'chosen'};at=2",
    )  # fmt: skip
    result = job.result()

    assert result["phase"] == "succeeded", job.story()
    assert result["metrics"]["accuracy"] > 0.0
    assert {"worker-stalled", "lease-expired", "worker-lost"} <= set(job.kinds("worker-0"))
    assert "in wait_for_ever" in job.log("worker-0")
    job.wait_gone()
