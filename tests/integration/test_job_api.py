"""Jobs submitted from Python: real processes, inspected, changed and ended by the methods of Job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import elasticdl
from elasticdl import jobs
from elasticdl.cli.main import cli
from elasticdl.errors import JobFailed, JobNotFound, NameInUse, SpecError, WaitTimedOut
from elasticdl.kube.errors import ApiUnavailable, NoCluster
from elasticdl.launcher.local import processes
from elasticdl.spec import Phase, load
from elasticdl.spec.directory import JobDirectory, write_json
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


def _flags(options: dict[str, Any]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


def submit_digits() -> jobs.Job:
    return elasticdl.submit(**TRAIN, job_name="digits")


def hurry(home: Path, name: str) -> None:
    (home / f"{name}-slow").unlink()


def wait_step(job: jobs.Job, step: int, workers: int) -> None:
    def has_come_so_far() -> bool:
        status = job.status
        members = [worker for worker in status.living_workers if worker.state == "member"]
        return status.step >= step and len(members) == workers

    until(f"step {step} with {workers} workers", has_come_so_far, PATIENCE_S)


def test_a_job_is_scaled_inspected_waited_for_and_evaluated(home: Path) -> None:
    job = submit(home, "digits", is_slow=True)
    wait_step(job, 2, 2)

    with pytest.raises(WaitTimedOut, match="job 'digits' is still running after"):
        job.wait(timeout_s=0.1)
    with pytest.raises(NameInUse, match="job 'digits' is running"):
        submit(home, "digits")
    assert "3" in job.scale(workers=3)
    wait_step(job, 3, 3)
    assert [listed.name for listed in jobs.list()] == ["digits"] and jobs.find(
        "dig"
    ).name == jobs.find().name == "digits"

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


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: dead
contexts: [{name: dead, context: {cluster: dead, user: nobody, namespace: default}}]
clusters: [{name: dead, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {}}]
"""
anything: Any = elasticdl.submit  # also what its types refuse
TRAIN: Any = {"model_zoo": ZOO, "model_def": "tiny.forward", "training_data": "made-up", "data_format": "python"}
IN_IMAGE: Any = {"image_name": "zoo:1", "model_def": "tiny.forward", "training_data": "/data", "job_name": "there"}


def _command_line_refusal(words: Sequence[object]) -> str:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code != 0, result.output
    return result.stderr.removeprefix("error: ").removesuffix("\n")


@pytest.mark.parametrize(
    ("call", "words", "error"),
    [
        (lambda: anything(**TRAIN, num_worker=2), ["train", *_flags(TRAIN), "--num_worker=2"], SpecError),
        (
            lambda: anything(**TRAIN, wait=True, lr=1),
            ["train", *_flags(TRAIN), "--wait=1", "--lr=1"],
            SpecError,
        ),
        (lambda: anything(**TRAIN, num_workers="x"), ["train", *_flags(TRAIN), "--num_workers=x"], SpecError),
        (lambda: anything(**TRAIN, context="dead"), ["train", *_flags(TRAIN), "--context=dead"], SpecError),
        (lambda: anything(**TRAIN, priority=1), ["train", *_flags(TRAIN), "--priority=1"], SpecError),
        (lambda: anything("no.yaml"), ["train", "no.yaml"], SpecError),
        (submit_digits, ["train", *_flags(TRAIN), "--job_name=digits"], NameInUse),
        (lambda: anything(**IN_IMAGE), ["train", *_flags(IN_IMAGE)], ApiUnavailable),
        (
            lambda: elasticdl.submit(**IN_IMAGE, context="gone"),
            ["train", *_flags(IN_IMAGE), "--context=gone"],
            NoCluster,
        ),
        (lambda: jobs.find("gone", context="dead"), ["status", "gone", "--context=dead"], ApiUnavailable),
        (lambda: jobs.find("digist", on="local"), ["status", "digist", "--on=local"], JobNotFound),
        (lambda: jobs.find("digits").scale(), ["scale", "digits"], SpecError),
        (lambda: jobs.find("digits").scale(workers=0), ["scale", "digits", "--workers=0"], SpecError),
        (lambda: jobs.find("digits").scale(workers=2), ["scale", "digits", "--workers=2"], SpecError),
        (lambda: jobs.find("digits").logs("worker-7"), ["logs", "digits", "--worker=7"], SpecError),
    ],
)
def test_bad_input_is_refused_with_the_words_of_the_command_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object], words: list[str], error: type[Exception]
) -> None:
    (home / "kubeconfig").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(home / "kubeconfig"))
    directory = JobDirectory(home / "jobs" / "digits")
    directory.create(load.resolve_job({"name": "digits", "model": {"definition": "m.f"}}))
    write_json(directory.result, {"phase": "succeeded", "exit_code": 0})

    with pytest.raises(error) as refusal:
        call()

    assert str(refusal.value) == _command_line_refusal(words)


def test_a_job_that_is_gone_is_not_found_by_any_method(home: Path) -> None:
    directory = JobDirectory(home / "jobs" / "digits")
    directory.create(load.resolve_job({"name": "digits", "model": {"definition": "m.f"}}))
    job = jobs.find("digits")
    assert "deleted" in job.kill(delete=True)

    for method in (job.stop, job.kill, job.events, job.wait, job.logs, job.evaluate, lambda: job.scale(workers=2)):
        with pytest.raises(JobNotFound, match=r"no job 'digits' in .* any more: it was deleted"):
            method()


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
