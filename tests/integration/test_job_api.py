"""Jobs submitted from Python: real processes, looked at, changed and ended by the methods of Job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import elasticdl
from elasticdl import jobs
from elasticdl.errors import JobFailed, JobNotFound, NameInUse, SpecError, WaitTimedOut
from elasticdl.launcher.local import processes
from elasticdl.spec import Phase
from elasticdl.spec.directory import JobDirectory
from tests.integration.job import PATIENCE_S, ZOO
from tests.integration.scheduling import Scheduler
from tests.waiting import until

RECORDS, EPOCHS, BATCH = 205, 6, 10
STEPS = EPOCHS * -(-RECORDS // BATCH)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of its own; none of its processes outlives the test."""
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path))
    yield tmp_path
    for path in (tmp_path / "jobs").glob("*/spec.json"):
        processes.kill_processes(JobDirectory(path.parent))


def submit(home: Path, name: str, *, is_slow: bool = False, **options: Any) -> jobs.Job:
    """Trains tests/integration/tiny.py; a slow job is held up until its file is removed."""
    slow = home / f"{name}-slow"
    if is_slow:
        slow.touch()
    common: dict[str, Any] = {
        "job_name": name, "model_zoo": ZOO, "model_def": "tiny.forward", "training_data": "made-up",
        "validation_data": "made-up", "data_format": "python", "num_epochs": EPOCHS, "global_batch_size": BATCH,
        "logical_ranks": 4, "max_workers": 4, "num_workers": 2, "threads": 1, "output": home / f"{name}-output",
        "model_params": {"slow": str(slow), "pause_s": 0.15},
    }  # fmt: skip
    return elasticdl.submit(**{**common, **options})


def hurry(home: Path, name: str) -> None:
    (home / f"{name}-slow").unlink()


def wait_step(job: jobs.Job, step: int, workers: int) -> None:
    def has_come_so_far() -> bool:
        status = job.status
        members = [worker for worker in status.living_workers if worker.state == "member"]
        return status.step >= step and len(members) == workers

    until(f"step {step} with {workers} workers", has_come_so_far, PATIENCE_S)


def test_a_job_is_scaled_looked_at_waited_for_and_evaluated(home: Path) -> None:
    job = submit(home, "digits", is_slow=True)
    wait_step(job, 2, 2)

    with pytest.raises(WaitTimedOut, match="job 'digits' is still running after"):
        job.wait(timeout_s=0.1)
    with pytest.raises(NameInUse, match="job 'digits' is running"):
        submit(home, "digits")
    assert "3" in job.scale(workers=3)
    wait_step(job, 3, 3)
    assert [one.name for one in jobs.list()] == ["digits"] and jobs.find("dig").name == jobs.find().name == "digits"

    hurry(home, "digits")
    phases: list[Phase] = []
    last = job.wait(timeout_s=PATIENCE_S, on_progress=lambda status: phases.append(status.phase))

    assert (last.phase, last.exit_code, last.step) == (Phase.SUCCEEDED, 0, STEPS)
    assert phases[0] is Phase.RUNNING and phases[-1] is Phase.SUCCEEDED
    assert {"worker-joined", "evaluation", "finished"} <= {event.kind for event in job.events()}
    assert [evaluation.step for evaluation in job.evaluations()][-1] == STEPS
    assert any("rank 0 of 2" in line.text for line in job.logs("worker-0"))
    assert {"master", "launcher", "worker-0"} <= {line.replica for line in job.logs()}
    with pytest.raises(SpecError, match="job 'digits' is over"):
        job.scale(workers=2)

    evaluation = job.evaluate(job_name="digits-eval", threads=1)
    result = evaluation.wait(PATIENCE_S).raise_for_failure()

    assert result.kind == "evaluation" and result.metrics == pytest.approx(job.metrics)
    assert "deleted" in evaluation.kill(delete=True)
    with pytest.raises(JobNotFound, match="no job 'digits-eval'"):
        _ = evaluation.status


def test_a_block_stops_its_job_with_a_checkpoint_and_it_can_be_resumed(home: Path) -> None:
    with submit(home, "digits", is_slow=True) as job:
        wait_step(job, 2, 2)

    stopped = job.status
    assert stopped.phase is Phase.STOPPED and stopped.checkpoint_step is not None and stopped.checkpoint_step >= 2
    with pytest.raises(JobFailed, match="job 'digits' stopped: elasticdl stop"):
        stopped.raise_for_failure()

    hurry(home, "digits")
    resumed = elasticdl.submit(job_name="last", resume=True)

    assert resumed.name == "digits"
    assert resumed.wait(PATIENCE_S).raise_for_failure().step == STEPS


def test_ctrl_c_in_wait_ends_the_session_and_not_the_job(home: Path) -> None:
    program = f"""
import elasticdl, sys
from pathlib import Path
from tests.integration.test_job_api import submit
job = submit(Path({str(home)!r}), "digits", is_slow=True)
print("waiting", flush=True)
job.wait()
"""
    session = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with session:
        assert session.stdout is not None and session.stderr is not None
        assert session.stdout.readline() == "waiting\n"
        job = jobs.find("digits")
        wait_step(job, 2, 2)
        session.send_signal(signal.SIGINT)
        problem = session.stderr.read()

    assert session.returncode in (-signal.SIGINT, 130) and "KeyboardInterrupt" in problem
    before = job.status.step
    wait_step(job, before + 1, 2)
    assert "stopping" in job.stop()
    assert job.wait(PATIENCE_S).phase is Phase.STOPPED


def test_a_queued_job_waits_for_a_scheduler_runs_and_can_be_taken_out(home: Path) -> None:
    first = submit(home, "first", queue="", min_workers=1)
    assert first.status.phase is Phase.WAITING and "start one with `elasticdl scheduler`" in first.status.reason
    scheduler = Scheduler(home)
    try:
        scheduler.start(2)
        second = submit(home, "second", queue="", priority=-5, min_workers=2)

        assert "the scheduler decides on its workers" in _refusal(second)
        assert "taken out of the queue" in second.stop()
        assert second.wait(PATIENCE_S).phase is Phase.STOPPED
        assert first.wait(PATIENCE_S).raise_for_failure().step == STEPS
    finally:
        scheduler.end()


def _refusal(job: jobs.Job) -> str:
    with pytest.raises(SpecError) as refusal:
        job.scale(workers=1)
    return str(refusal.value)


def test_a_script_and_a_mapping_are_jobs_too(home: Path) -> None:
    script = home / "train.py"
    script.write_text("import elasticdl.torch as elastic\nprint('ran', flush=True)\n")
    described = {"kind": "script", "script": {"path": str(script)}, "workers": {"replicas": 1}, "name": "described"}

    by_options = elasticdl.submit(
        script=script,
        arguments=["--lr", 0.1],  # type: ignore[list-item]
        workers=1,
        job_name="by-options",
    )

    assert by_options.spec.script is not None and by_options.spec.script.arguments == ("--lr", "0.1")
    by_options.kill()
    job = elasticdl.submit(described, threads=1)
    assert job.spec.workers.replicas == 1
    assert job.directory == home / "jobs" / "described"
    assert job.kill() == "described: killed"
    assert job.wait(PATIENCE_S).phase is Phase.STOPPED
    assert os.environ["ELASTICDL_HOME"] == str(home)
