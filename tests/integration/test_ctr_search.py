"""`elasticdl ctr search` with real jobs: pruned jobs end at once, and no job outlives a killed search."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

from elasticdl.ctr import config as configs
from elasticdl.spec.env import HOME
from tests.integration.scheduling import Scheduler
from tests.integration.test_ctr_job import clicks
from tests.waiting import until

pytest.importorskip("optuna")

pytestmark = pytest.mark.timeout(600)  # a busy machine takes minutes to import torch so often
PATIENCE_S = 200.0
GOOD, BAD = 0.1, 1e-7
SEED = "--seed=10"  # of two rates it tries the first, the second, the first
# What learns nothing gets better by very little each time, and would train for minutes.
CONFIG = """
data: clicks.csv
label: clicked
model: lr
features: {importance: drop, tags: drop, at: drop}
training: {epochs: 400, batch_size: 128, patience: 3}
workers: 1
search: {learning_rate: RATES}
"""


def make(directory: Path, rates: list[float]) -> None:
    clicks(directory / "clicks.csv", 1500, seed=0)
    (directory / "ctr.yaml").write_text(CONFIG.replace("RATES", json.dumps(rates)))


def begin(directory: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "elasticdl.cli", "ctr", "search", "ctr.yaml", *words],
        cwd=directory, env=os.environ | {HOME: str(directory / "home"), "COLUMNS": "150", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@contextmanager
def search(directory: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Whatever happens in the block, no job is left afterwards."""
    process = begin(directory, *words)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)
        for path in (directory / "home" / "jobs").glob("*"):
            until(f"{path.name} is gone", lambda job=path.name: not processes(directory, job), PATIENCE_S)  # type: ignore[misc]


def read_to_end(process: subprocess.Popen[str], code: int) -> str:
    """Returns the remaining output after the process ends."""
    assert process.stdout is not None
    output = process.stdout.read()
    assert process.wait(PATIENCE_S) == code, output
    return output


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if text in line:
            return output
    raise AssertionError(f"never said {text!r}:\n{output}")


def processes(directory: Path, job: str) -> list[psutil.Process]:
    """Launcher, master, workers and ps: the job's directory is in the arguments or in the environment of each."""
    path = str(directory / "home" / "jobs" / job)
    job_processes = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
            if any(path in word for word in words) and process.status() != psutil.STATUS_ZOMBIE:
                job_processes.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return job_processes


def evaluations(directory: Path, job: str) -> int:
    log = directory / "home" / "jobs" / job / "events.jsonl"
    return log.read_text().count('"evaluation"') if log.exists() else 0


def test_a_hopeless_trial_frees_its_workers_at_once_and_the_best_is_a_config(tmp_path: Path) -> None:
    make(tmp_path, [GOOD, BAD])
    with search(tmp_path, "--trials=3", "--startup=1", SEED) as process:
        output = read_until(process, "ctr-trial-001: running")
        until("launcher, master, ps and worker run", lambda: len(processes(tmp_path, "ctr-trial-001")) >= 4, PATIENCE_S)
        output += read_until(process, "ctr-trial-001: pruned")
        assert processes(tmp_path, "ctr-trial-001") == [], "while the search goes on"
        output += read_to_end(process, 0)

    assert "ctr-trial-000: complete" in output
    assert "best: trial" in output and f"learning_rate {GOOD}" in output
    written = tmp_path / "ctr-ctr" / "search" / "best.yaml"
    best = configs.parse_config(yaml.safe_load(written.read_text()), "best.yaml")
    assert best.training.learning_rate == GOOD and best.data == str(tmp_path / "clicks.csv")
    words = [sys.executable, "-m", "elasticdl.cli", "ctr", "build", str(written)]
    built = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    assert "1,200 rows to train on" in built and "changed by hand" not in built, "it can be trained as it is"
    assert json.loads((tmp_path / "home/jobs/ctr-trial-001/result.json").read_text())["phase"] == "stopped"
    assert not (tmp_path / "home/jobs/ctr-trial-000/checkpoints").exists(), "nobody goes on with it"


@pytest.mark.slow
def test_a_killed_search_leaves_no_job_and_the_next_search_continues_its_trial(tmp_path: Path) -> None:
    make(tmp_path, [BAD])
    job = tmp_path / "home" / "jobs" / "ctr-trial-000"
    with search(tmp_path, "--trials=1") as process:
        until("evaluations are known", lambda: evaluations(tmp_path, job.name) >= 2, PATIENCE_S)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        until("the job ended by itself", lambda: not processes(tmp_path, job.name), PATIENCE_S)

    with search(tmp_path, "--trials=1") as process:
        read_until(process, "ctr-trial-000: running, evaluation")
        until("the job goes on and is evaluated", lambda: evaluations(tmp_path, job.name), PATIENCE_S)
        assert (job / "previous-1").is_dir(), "the same job, from its checkpoint"
        process.send_signal(signal.SIGINT)
        assert "1 running" in read_to_end(process, 130)
        assert processes(tmp_path, job.name) == []


@pytest.mark.slow
def test_with_a_scheduler_trials_are_queued_and_leave_the_queue_when_pruned(tmp_path: Path) -> None:
    make(tmp_path, [GOOD, BAD])
    (tmp_path / "home").mkdir()
    scheduler = Scheduler(tmp_path / "home")
    scheduler.start(budget=2)
    try:
        process = begin(tmp_path, "--trials=2", "--parallel=1", SEED)
        read_until(process, "ctr-trial-000")
        submission = scheduler.queue.find("ctr-trial-000")
        assert submission is not None and submission.priority < 0
        process.kill()
        process.communicate(timeout=PATIENCE_S)
        with search(tmp_path, "--trials=2", "--parallel=1", "--startup=1", "--seed=0") as process:
            output = read_until(process, "ctr-trial-000: complete")
            assert not (tmp_path / "home/jobs/ctr-trial-000/previous-1").exists(), "taken up as it was"
            output += read_until(process, "ctr-trial-001: pruned")
            assert processes(tmp_path, "ctr-trial-001") == []
            output += read_to_end(process, 0)
        scheduler.wait_empty()
        assert "1 complete, 1 pruned" in output
    finally:
        scheduler.end()
