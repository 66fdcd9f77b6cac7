"""The experiments with real processes: this machine's scheduler, real jobs, and what their event logs tell.

Scaled down to 8 slots. Batches are mostly asleep, so that 8 workers train side by side on two cores. The service is
jobs of greater priority that come and end by themselves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elasticdl.cli import history, story
from elasticdl.errors import PermanentError
from elasticdl.scheduler.local.queue import Queue
from elasticdl.sim.course import Course, Run
from elasticdl.spec.env import HOME

SLOTS = 8
RANKS = 20  # of a global batch, which its workers share: each takes `PAUSE_S`
PAUSE_S = 0.02
PATIENCE_S = 300.0
POLICIES = ("fifo-gang", "elastic-first-come", "courteous")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job of an experiment, so many seconds after the first."""

    name: str
    after_s: float
    steps: int
    minimum: int
    wish: int
    maximum: int
    priority: int = 0
    is_endless: bool = False  # it is stopped when all others are over


EXPERIMENTS = {
    # As 175 of 320, the second in the middle of the first.
    "two-jobs": (Submitted("first", 0.0, 300, 1, 5, 5), Submitted("second", 15.0, 300, 1, 5, 5)),
    "mixed": (
        Submitted("training", 0.0, 100_000, 1, 6, SLOTS, is_endless=True),
        Submitted("service-1", 15.0, 90, 3, 3, 3, priority=10),
        Submitted("service-2", 25.0, 100, 2, 2, 2, priority=10),
        Submitted("service-3", 50.0, 90, 4, 4, 4, priority=10),
    ),
}


def run(name: str, say: Say) -> list[Course]:
    """One policy after the other, each in a home of its own."""
    courses = []
    for policy in POLICIES:
        say(f"{policy} …")
        with tempfile.TemporaryDirectory(prefix="elasticdl-experiment-") as root:
            courses.append(_run(policy, EXPERIMENTS[name], Path(root)))
    return courses


def _run(policy: str, jobs: tuple[Submitted, ...], root: Path) -> Course:
    queue = Queue(root)
    environ = {**os.environ, HOME: str(root), "OMP_NUM_THREADS": "1"}
    with _scheduler(policy, queue, environ):
        began = _submit(jobs[0], queue, environ)
        submitted = {jobs[0].name: began}
        for job in jobs[1:]:
            time.sleep(max(began + job.after_s - time.time(), 0.0))
            submitted[job.name] = _submit(job, queue, environ)
        lasting = {job.name for job in jobs if job.is_endless}
        _wait(lambda: set(queue.names()) <= lasting, "the jobs to end")
        end = time.time()
        for name in lasting:
            queue.ask_to_stop(name)
        _wait(lambda: not queue.names(), "the last job to stop")
    runs = {name: _read(queue, name, at, began, end) for name, at in submitted.items()}
    if not lasting:
        end = began + max(run.ended_at or 0.0 for run in runs.values())
    return Course(policy, SLOTS, end - began, runs)


@contextmanager
def _scheduler(policy: str, queue: Queue, environ: dict[str, str]) -> Iterator[None]:
    """Whatever happens in the block, no job is left afterwards."""
    queue.home.mkdir(parents=True, exist_ok=True)
    argv = [*_ELASTICDL, "scheduler", f"--budget={SLOTS}", f"--policy={policy}"]
    with (queue.home / "scheduler-output").open("wb") as output:
        process = subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        _wait(queue.is_served, "the scheduler", process)
        yield
    finally:
        for name in queue.names():
            queue.ask_to_stop(name)
        _wait(lambda: not queue.names() or process.poll() is not None, "jobs to stop")
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


_ELASTICDL = [sys.executable, "-m", "elasticdl.cli"]


def _submit(job: Submitted, queue: Queue, environ: dict[str, str]) -> float:
    """When it was in the queue."""
    zoo = Path(__file__).parents[1] / "zoo"
    done = subprocess.run(
        [
            *_ELASTICDL, "train", "--queue", f"--priority={job.priority}", f"--job_name={job.name}",
            f"--model_zoo={zoo}", "--model_def=paced.paced.forward", f"--model_params=pause_s={PAUSE_S}",
            "--training_data=made-up", "--data_format=python", f"--global_batch_size={RANKS}",
            f"--logical_ranks={RANKS}", "--num_epochs=10000", f"--max_steps={job.steps}", "--threads=1",
            f"--min_workers={job.minimum}", f"--num_workers={job.wish}", f"--max_workers={job.maximum}",
        ],
        env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    found = queue.find(job.name)
    if done.returncode or found is None:
        raise PermanentError(f"job {job.name} was not submitted: {done.stdout}{done.stderr}")
    return found.submitted_at


def _read(queue: Queue, name: str, submitted_at: float, began: float, end: float) -> Run:
    """By its event log: a worker has its slot from its launch to its end."""
    lives = story.spans(history.read_events(queue.directory_of(name)))
    spans = tuple(
        (life.started_at - began, min(life.ended_at or end, end) - began, 1) for life in lives if life.started_at < end
    )
    last = max((life.ended_at or end for life in lives), default=None)
    return Run(
        submitted_at - began,
        min((one[0] for one in spans), default=None),
        None if last is None else last - began,
        spans,
    )


def _wait(is_so: Callable[[], bool], what: str, process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            raise PermanentError(f"waited in vain for {what}")
        time.sleep(0.05)
