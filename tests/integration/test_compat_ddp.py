"""Unmodified torchrun scripts: started by rounds, restarted on every change, with the result of an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from elasticdl.spec.env import HOME
from tests.integration.job import Job, Jobs
from tests.waiting import until

SCRIPT = Path(__file__).parent / "ddp_script.py"
EPOCHS = 200


def start(jobs: Jobs, directory: Path, workers: str, *options: str, slow: bool = True) -> Job:
    directory.mkdir(exist_ok=True)
    if slow:
        (directory / "slow").touch()
    job = Job(jobs.home, "ddp")
    return jobs.launch(
        job,
        ["run", "--detach", "--compat", "ddp", "--job_name", "ddp", "--workers", workers, "--threads", "1", *options,
         str(SCRIPT), str(directory), str(EPOCHS)],
    )  # fmt: skip


def weights(directory: Path) -> torch.Tensor:
    saved = torch.load(directory / "snapshot.pt", weights_only=True)
    assert saved["epoch"] == EPOCHS
    return torch.cat([saved["model"]["weight"].reshape(-1), saved["model"]["bias"]])


def wait_printed(job: Job, words: str) -> None:
    until(words, lambda: any(words in path.read_text() for path in job.directory.logs.glob("worker-*.log")),
          tell=job.story)  # fmt: skip


def run_alone(directory: Path) -> torch.Tensor:
    """The weights of one process that nobody disturbs."""
    directory.mkdir()
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": "0", "TORCHELASTIC_RESTART_COUNT": "0"}  # fmt: skip
    subprocess.run(
        [sys.executable, str(SCRIPT), str(directory), str(EPOCHS)], env=os.environ | alone, check=True, timeout=60
    )
    return weights(directory)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    return run_alone(tmp_path_factory.mktemp("expected") / "alone")


def test_a_script_survives_scaling_a_killed_worker_and_a_dead_master(
    jobs: Jobs, tmp_path: Path, expected: torch.Tensor
) -> None:
    directory = tmp_path / "work"
    job = start(jobs, directory, "1:3", "--failure_budget", "0")
    wait_printed(job, "of 3 processes")

    job.scale(2)
    wait_printed(job, "of 2 processes")
    job.kill_master()
    job.wait_event("master-restarted")
    job.scale(3)
    job.wait(lambda status: status.round == 3, "round 3")
    members = job.wait_members(3)
    wait_printed(job, "rank 2 of 3 begins")
    os.kill(list(members.values())[1], signal.SIGKILL)
    job.wait(lambda status: status.round == 4, "round 4")
    (directory / "slow").unlink()

    result = job.result()
    assert (result["phase"], result["reason"]) == ("succeeded", "all scripts ended with exit code 0"), job.story()
    assert result["workers_failed"] == 0
    torch.testing.assert_close(weights(directory), expected, rtol=1e-9, atol=1e-12)
    job.wait_gone()


@pytest.mark.slow
def test_a_script_that_fails_once_is_restarted(jobs: Jobs, tmp_path: Path, expected: torch.Tensor) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "fail").touch()
    job = start(jobs, directory, "2", slow=False)

    result = job.result()

    assert result["phase"] == "succeeded", job.story()
    assert result["workers_failed"] == 1
    (ended,) = [event for event in job.events() if event["kind"] == "scripts-ended"]
    assert "ValueError: wrong once" in job.log("worker-1")
    assert ended["replica"] in ("worker-0", "worker-1")
    torch.testing.assert_close(weights(directory), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_script_that_always_fails_ends_the_job_with_its_exception(jobs: Jobs, tmp_path: Path) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "fail-always").touch()
    job = start(jobs, directory, "2", "--failure_budget", "1", slow=False)

    result = job.result()

    assert (result["phase"], result["exit_code"]) == ("failed", 1)
    assert "scripts failed 2 times, 1 are allowed" in result["reason"]
    assert "Error: " in result["reason"], "of the script itself, or of its peer that lost it"
    job.wait_gone()


@pytest.mark.slow
def test_stop_ends_the_scripts_and_resume_continues_from_their_snapshot(
    jobs: Jobs, tmp_path: Path, expected: torch.Tensor
) -> None:
    directory = tmp_path / "work"
    job = start(jobs, directory, "2")
    wait_printed(job, "epoch 10 of 2 processes")
    job.stop()
    assert (job.result()["phase"], job.result()["exit_code"]) == ("stopped", 130)
    job.wait_gone()

    (directory / "slow").unlink()
    jobs.launch(job, ["run", "--detach", "--resume", "--job_name", "ddp"])

    until("the end", lambda: job.result()["phase"] == "succeeded", tell=job.story)
    torch.testing.assert_close(weights(directory), expected, rtol=1e-9, atol=1e-12)
    assert "begins at epoch 0" not in job.log("worker-0")  # the log of the resumed job


@pytest.mark.slow
def test_the_terminal_shows_the_output_of_the_first_worker_once_although_it_is_replaced(
    jobs: Jobs, tmp_path: Path
) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "slow").touch()
    job = Job(jobs.home, "ddp")
    jobs.adopt(job)
    terminal = tmp_path / "terminal"
    argv = [sys.executable, "-m", "elasticdl.cli", "run", "--compat", "ddp", "--job_name", "ddp", "--workers", "2",
            "--threads", "1", str(SCRIPT), str(directory), str(EPOCHS)]  # fmt: skip
    with terminal.open("w") as output:
        command = subprocess.Popen(argv, env=os.environ | {HOME: str(jobs.home)}, stdout=output, stderr=output)
    try:
        until("prints", lambda: "epoch 5 of 2 processes" in terminal.read_text(), tell=terminal.read_text)
        os.kill(job.wait_members(2)["worker-0"], signal.SIGKILL)
        job.wait(lambda status: status.round == 2, "round 2")
        (directory / "slow").unlink()
        assert command.wait(60) == 0, terminal.read_text()
    finally:
        command.kill()

    text = terminal.read_text()
    epochs = [int(line.split()[1]) for line in text.splitlines() if line.startswith("epoch ")]
    assert epochs == sorted(set(epochs)), "a print came twice, or late"
    assert epochs[-1] == EPOCHS - 1
    assert len(epochs) >= EPOCHS - 1  # one may be saved but not yet printed at the kill
    assert "rank 0 of 2 begins at epoch 0" in text
    assert "rank 1 of 2 begins at epoch 0" not in text
    # What the user is told at submit.
    assert "note: ddp_script.py runs as under torchrun" in text
    assert "→ step.backward(loss)" in text


def test_scripts_have_a_grace_period_to_end_and_are_killed_after_it(jobs: Jobs, tmp_path: Path) -> None:
    script = tmp_path / "stubborn.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "rank = os.environ['RANK']\n"
        "def save(number, frame):\n"
        "    open(sys.argv[1] + '/saved-' + rank, 'w').close()\n"
        "    if rank == '0':\n"
        "        sys.exit(0)\n"  # rank 1 goes on
        "signal.signal(signal.SIGTERM, save)\n"
        "print('rank', rank, 'waits')\n"
        "while True:\n"
        "    time.sleep(0.05)\n"
    )
    job = Job(jobs.home, "ddp")
    jobs.launch(
        job,
        ["run", "--detach", "--compat", "ddp", "--job_name", "ddp", "--workers", "2", "--timing", "grace_period_s=5",
         str(script), str(tmp_path)],
    )  # fmt: skip
    wait_printed(job, "rank 0 waits")
    wait_printed(job, "rank 1 waits")

    job.stop()

    result = job.result()
    assert (result["phase"], result["reason"]) == ("stopped", "elasticdl stop"), job.story()
    assert (tmp_path / "saved-0").exists() and (tmp_path / "saved-1").exists()
    assert "does not end: it gets SIGKILL" in job.log("worker-1")
    assert "it gets SIGKILL" not in job.log("worker-0")
    job.wait_gone()
