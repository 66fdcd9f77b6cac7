"""The experiments with real processes: this machine's scheduler, real jobs, and results from their event logs.

Scaled down to 8 slots. Batches mostly sleep, so that 8 workers train at the same time on two cores. The service
consists of jobs of higher priority that start and end by themselves. A job waits until its slots are free and the
scheduler launches it; its workers run some seconds later, as in the simulator.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl import api
from elasticdl.errors import PermanentError
from elasticdl.experiments.results import ExperimentResult, JobRun
from elasticdl.jobs import history, home, timeline
from elasticdl.scheduler.local.queue import SubmissionQueue

LOGICAL_RANKS = 20  # of a global batch, which its workers share: each takes `PAUSE_S`
BATCH_PAUSE_S = 0.05
TIMEOUT_S = 300.0
POLL_S = 0.05
POLICIES = ("fifo-gang", "elastic-first-come", "max-min")

PrintLine = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ExperimentJob:
    """A job of an experiment, and its delay after the submission of the first job."""

    name: str
    submitted_after_s: float  # not used for the first job
    steps: int
    min_workers: int
    workers: int
    max_workers: int
    priority: int = 0
    is_endless: bool = False  # it is stopped when all other jobs have ended


@dataclass(frozen=True, slots=True)
class Scenario:
    """An experiment: the slots of the machine, and its jobs."""

    slots: int
    jobs: tuple[ExperimentJob, ...]


SCENARIOS = {
    # In proportion to 175 of 320; the second is submitted in the middle of the first.
    "two-jobs": Scenario(8, (ExperimentJob("first", 0.0, 120, 1, 5, 5), ExperimentJob("second", 12.0, 120, 1, 5, 5))),
    "mixed": Scenario(
        8,
        (
            ExperimentJob("training", 0.0, 100_000, 1, 6, 8, is_endless=True),
            # At most 7 slots together, however long the jobs take to start.
            ExperimentJob("service-1", 5.0, 50, 3, 3, 3, priority=10),
            ExperimentJob("service-2", 20.0, 35, 2, 2, 2, priority=10),
            ExperimentJob("service-3", 50.0, 30, 2, 2, 2, priority=10),
        ),
    ),
}


def run_experiment(name: str, say: PrintLine) -> list[ExperimentResult]:
    """Runs the policies one after the other. Ctrl-C and SIGTERM leave no job behind."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    courses = []
    for policy in POLICIES:
        say(f"{policy} …")
        courses.append(run_scenario(policy, SCENARIOS[name]))
    return courses


def run_scenario(policy: str, scene: Scenario) -> ExperimentResult:
    """Runs a scenario in a home of its own."""
    with tempfile.TemporaryDirectory(prefix="elasticdl-experiment-") as root:
        return _run_scenario(policy, scene, Path(root))


def _run_scenario(policy: str, scene: Scenario, root: Path) -> ExperimentResult:
    queue, jobs = SubmissionQueue(root), scene.jobs
    with home.use_home(root):
        return _run_jobs(policy, scene.slots, queue, jobs)


def _run_jobs(policy: str, slots: int, queue: SubmissionQueue, jobs: Sequence[ExperimentJob]) -> ExperimentResult:
    seen = _JobObserver(queue)
    with _running_scheduler(policy, slots, queue):
        began = _submit_job(jobs[0], queue)
        submitted = {jobs[0].name: began}
        _wait_until(lambda: seen.observe(submitted) and seen.has_joined(jobs[0].name), "the first job to train")
        first = time.time()
        for job in jobs[1:]:
            while time.time() < first + job.submitted_after_s:
                seen.observe(submitted)
                time.sleep(POLL_S)
            submitted[job.name] = _submit_job(job, queue)
        lasting = {job.name for job in jobs if job.is_endless}
        _wait_until(lambda: seen.observe(submitted) and set(queue.job_names()) <= lasting, "the jobs to end")
        end = time.time()
        for name in lasting:
            queue.request_stop(name)
        _wait_until(lambda: seen.observe(submitted) and not queue.job_names(), "the last job to stop")
    runs = {
        name: _job_run(seen.event_log(name), at, seen.launched_at.get(name), began, end)
        for name, at in submitted.items()
    }
    if not lasting:
        end = began + max(run.ended_at or 0.0 for run in runs.values())
    return ExperimentResult(policy, slots, end - began, runs)


class _JobObserver:
    """Collects the events of jobs, and when each was launched. A job that is suspended and resumed begins a new log."""

    def __init__(self, queue: SubmissionQueue) -> None:
        self.launched_at: dict[str, float] = {}
        self._queue = queue
        self._found: dict[str, dict[str, Mapping[str, Any]]] = {}

    def observe(self, names: Iterable[str]) -> bool:
        """Reads the events and launches of jobs. Returns True."""
        for name in names:
            events = history.read_events(self._queue.job_directory(name))
            self._found.setdefault(name, {}).update({json.dumps(event, sort_keys=True): event for event in events})
        report = self._queue.load_report()
        for name, status in report.jobs.items() if report else ():
            if status.account.launched_at is not None:
                self.launched_at[name] = status.account.launched_at
        return True

    def event_log(self, name: str) -> list[Mapping[str, Any]]:
        return sorted(self._found.get(name, {}).values(), key=lambda event: float(event.get("at") or 0.0))

    def has_joined(self, name: str) -> bool:
        return any(event.get("kind") == timeline.JOINED for event in self.event_log(name))


@contextmanager
def _running_scheduler(policy: str, slots: int, queue: SubmissionQueue) -> Iterator[None]:
    """Runs a scheduler during the block. However the block ends, no job is left afterwards."""
    environ = {**home.process_environ(), "OMP_NUM_THREADS": "1"}
    queue.root.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-P", "-m", "elasticdl.cli", "scheduler", f"--budget={slots}", f"--policy={policy}"]
    with (queue.root / "scheduler-output").open("wb") as output:
        process = subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        _wait_until(queue.is_served, "the scheduler", process)
        yield
    finally:
        for name in queue.job_names():
            queue.request_stop(name)
        _wait_until(lambda: not queue.job_names() or process.poll() is not None, "jobs to stop")
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)


def _submit_job(job: ExperimentJob, queue: SubmissionQueue) -> float:
    """Puts a job into the queue. Returns the time of its submission."""
    api.submit(
        queue="",
        priority=job.priority,
        job_name=job.name,
        model_zoo=Path(__file__).parents[1] / "zoo",
        model_def="paced.paced.forward",
        model_params={"pause_s": BATCH_PAUSE_S},
        training_data="made-up",
        data_format="python",
        global_batch_size=LOGICAL_RANKS,
        logical_ranks=LOGICAL_RANKS,
        num_epochs=10_000,
        max_steps=job.steps,
        threads=1,
        min_workers=job.min_workers,
        num_workers=job.workers,
        max_workers=job.max_workers,
    )
    submission = queue.find(job.name)
    if submission is None:
        raise PermanentError(f"job {job.name} is not in the queue: it was taken out")
    return submission.submitted_at


def _job_run(
    events: list[Mapping[str, Any]], submitted_at: float, launched_at: float | None, began: float, end: float
) -> JobRun:
    """A worker has its slot from its launch to its end; the job's slots become free for it slightly earlier."""
    lives = [life for life in timeline.worker_lifetimes(events) if life.started_at < end]
    joined = [life.joined_at - began for life in lives if life.joined_at is not None]
    ended = [min(life.ended_at or end, end) - began for life in lives]
    return JobRun(
        submitted_at - began,
        None if launched_at is None else launched_at - began,
        min(joined, default=None),
        max(ended, default=None),
        tuple((life.started_at - began, until, 1) for life, until in zip(lives, ended, strict=True)),
    )


def _wait_until(is_so: Callable[[], bool], awaited: str, process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            raise PermanentError(f"{awaited} did not happen in time")
        time.sleep(POLL_S)
