"""After launcher and master are killed, leftover processes are found, reported and ended before the job resumes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elasticdl.launcher.local import processes
from elasticdl.launcher.local.record import LauncherRecord
from elasticdl.launcher.local.watched_process import start_ticks
from elasticdl.spec.env import RUN, WORKER
from tests.integration.job import PATIENCE_S, Job, Jobs
from tests.waiting import until


def wait_launched(job: Job) -> None:
    until("a worker process", lambda: processes.find_replicas(job.directory), PATIENCE_S, tell=job.story)


def wait_trained(job: Job) -> None:
    job.wait_members(2, step=5)


def wait_checkpoint(job: Job) -> None:
    job.wait_event("checkpoint")


def wait_joining(job: Job) -> None:
    job.wait_members(2, step=3)
    job.scale(3)
    until("a third process", lambda: len(processes.find_replicas(job.directory)) == 3, PATIENCE_S, tell=job.story)


MOMENTS = [
    wait_trained,
    *(pytest.param(wait, marks=pytest.mark.slow) for wait in (wait_launched, wait_checkpoint, wait_joining)),
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_job_without_launcher_and_master_is_resumed_with_one_set_of_workers(
    jobs: Jobs, undisturbed: str, moment: Callable[[Job], None]
) -> None:
    job = jobs.train("pair", 2, "--checkpoint_steps", "10", slow=True)
    moment(job)
    job.kill_launcher_and_master()
    left = processes.find_replicas(job.directory)
    assert left, job.story()

    job.hurry()
    again = jobs.train("pair", 2, "--resume", slow=True)

    assert [start_ticks(process.pid) == process.start_ticks for process in left] == [False] * len(left)
    again.wait_members(2)
    assert [process.replica for process in processes.find_replicas(again.directory)] == ["worker-0", "worker-1"]
    again.hurry()
    assert again.digest() == undisturbed
    again.wait_gone()
    assert processes.find_processes(again.directory) == []


@pytest.mark.slow
def test_resume_lists_the_processes_it_ends_and_continues_from_the_step_that_was_reached(jobs: Jobs) -> None:
    job = jobs.train("told", 2, slow=True)
    job.wait_members(2, step=7)
    job.kill_launcher_and_master()
    left = processes.find_replicas(job.directory)

    status = job.document()
    done = job.command("train", "--resume", "--detach", "--job_name", "told")

    assert (status["phase"], [process["pid"] for process in status["leftover_processes"]]) == (
        "failed",
        [x.pid for x in left],
    )
    assert f"{processes.describe_processes(left)} still run. Go on with --resume" in status["reason"]
    assert done.returncode == 0, done.stderr
    assert (
        f"ending what is left of the last run, with a checkpoint: {processes.describe_processes(left)}" in done.stdout
    )
    assert job.wait(lambda status: status.step > 0, "what it had").step >= 7


@pytest.mark.parametrize("moment", [wait_launched, pytest.param(wait_trained, marks=pytest.mark.slow)])
def test_stop_ends_leftover_processes_with_a_checkpoint_and_says_so(jobs: Jobs, moment: Callable[[Job], None]) -> None:
    job = jobs.train("stopped", 2, slow=True)
    moment(job)
    job.kill_launcher_and_master()
    left = processes.find_replicas(job.directory)

    done = job.command("stop", "stopped")

    assert done.returncode == 0, done.stderr
    assert (
        f"launcher and master were gone; ended what was left of it: {processes.describe_processes(left)}" in done.stdout
    )
    assert processes.find_processes(job.directory) == []
    result = job.result()
    assert (result["phase"], result["reason"]) == ("stopped", "elasticdl stop")
    if moment is wait_trained:
        assert (result["checkpoint_step"] or 0) >= 5, job.story()
    again = job.command("stop", "stopped")
    assert again.returncode == 2 and "is over (stopped)" in again.stderr


@pytest.mark.slow
def test_stop_now_kills_processes_that_no_launcher_recorded(jobs: Jobs) -> None:
    job = jobs.train("unknown", 2, slow=True)
    job.wait_members(2)
    job.kill_launcher_and_master()
    job.directory.launcher.write_text(job.directory.launcher.read_text().replace('"worker-1"', '"worker-0"'))

    done = job.command("stop", "unknown", "--now")

    assert done.returncode == 0, done.stderr
    assert processes.find_processes(job.directory) == []


def test_an_unrecorded_worker_exits_when_another_run_begins(jobs: Jobs, undisturbed: str) -> None:
    """Like a worker in another container, it is in no record and no process list."""
    job = jobs.train("hidden", 1, slow=True)
    members = job.wait_members(1, step=2)
    job.kill_launcher_and_master()
    previous = job.directory.create_next_run(job.directory.load_spec())

    launcher = processes.start_launcher(job.directory, attached_fd=None)  # nobody looks for anybody

    pid = members["worker-0"]
    until("its end", lambda: start_ticks(pid) is None, PATIENCE_S, tell=job.story)
    assert "and this process belongs to another run: it must end" in (previous / "logs" / "worker-0.log").read_text()
    job.hurry()
    assert job.digest() == undisturbed
    os.waitpid(launcher, 0)


@pytest.mark.slow
def test_a_launcher_that_died_before_it_recorded_a_worker_leaves_no_duplicate(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("twin", 2, slow=True)
    job.wait_members(2, step=2)
    before = processes.find_replicas(job.directory)
    record = job.record()
    os.kill(record.launcher.pid, signal.SIGKILL)
    until("its end", lambda: start_ticks(record.launcher.pid) is None, PATIENCE_S)
    del record.replicas["worker-1"]
    record.save(job.directory.launcher)

    until("another launcher", lambda: len(job.find_supervisors()) == 2, PATIENCE_S, tell=job.story)
    until("worker-1 is written down", lambda: "worker-1" in job.record().replicas, PATIENCE_S, tell=job.story)

    assert [process.pid for process in processes.find_replicas(job.directory)] == [process.pid for process in before]
    job.hurry()
    assert job.digest() == undisturbed


@pytest.mark.slow
def test_only_processes_of_this_job_and_run_are_found(jobs: Jobs) -> None:
    job, other_job = jobs.train("here", 1, slow=True), jobs.train("there", 1, slow=True)
    job.wait_members(1)
    other_job.wait_members(1)

    [worker] = processes.find_replicas(job.directory)

    assert processes.find_replicas(job.directory, run=1) == [worker]
    assert processes.find_replicas(job.directory, run=2) == []
    environ = Path(f"/proc/{worker.pid}/environ").read_text().split("\0")
    assert f"{WORKER}=worker-0" in environ and f"{RUN}=1" in environ
    assert worker.pid not in [process.pid for process in processes.find_processes(other_job.directory)]


@pytest.mark.slow
def test_replicas_of_a_launcher_with_a_damaged_record_are_adopted(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("damaged", 2, slow=True)
    job.wait_members(2, step=2)
    before, launcher = processes.find_replicas(job.directory), job.record().launcher
    os.kill(launcher.pid, signal.SIGSTOP)  # or it might write it again
    job.directory.launcher.write_bytes(bytes(200))
    os.kill(launcher.pid, signal.SIGKILL)

    until("another record", lambda: LauncherRecord.load(job.directory.launcher), PATIENCE_S, tell=job.story)
    until("two replicas in it", lambda: len(job.record().replicas) == 2, PATIENCE_S, tell=job.story)

    assert [process.pid for process in processes.find_replicas(job.directory)] == [process.pid for process in before]
    job.hurry()
    assert job.digest() == undisturbed


@pytest.mark.slow
def test_only_one_of_two_concurrent_resumptions_continues(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("race", 2, "--checkpoint_steps", "10", slow=True)
    job.wait_members(2, step=3)
    job.kill_launcher_and_master()
    job.hurry()
    words = ("train", "--resume", "--detach", "--job_name", "race")

    with ThreadPoolExecutor(2) as threads:
        codes = [done.returncode for done in threads.map(lambda _: job.command(*words), range(2))]

    assert sorted(codes)[0] == 0, job.story()
    assert job.digest() == undisturbed
    job.wait_gone()
    assert processes.find_processes(job.directory) == []
