"""Jobs of random priorities share a machine while scheduler, masters and whole jobs are killed: the same bits for all.

`make chaos-scheduler`, or CHAOS_SECONDS=300 CHAOS_SEED=7 make chaos-scheduler. The seed is printed: it repeats the
choices, not the timing.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticdl.launcher.local import processes
from elasticdl.launcher.local.record import LauncherRecord, is_running
from elasticdl.launcher.local.watched_process import start_ticks
from tests.integration.job import Job, Jobs
from tests.integration.scheduling import Scheduler
from tests.waiting import until

SECONDS = float(os.environ.get("CHAOS_SECONDS", "90"))
SEED = int(os.environ.get("CHAOS_SEED", str(random.SystemRandom().randrange(10**6))))
BUDGET = 4
AT_ONCE = 4  # unfinished jobs
PAUSE_S = 0.1


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    started = Jobs(tmp_path)
    yield started
    started.end()


@pytest.fixture
def scheduler(jobs: Jobs) -> Iterator[Scheduler]:
    started = Scheduler(jobs.home)
    yield started
    started.end()


class Crowd:
    """Submits a new job whenever another ends."""

    def __init__(self, jobs: Jobs, rng: random.Random) -> None:
        self._jobs = jobs
        self._rng = rng
        self.all: list[Job] = []
        self.story: list[str] = []

    def record(self, event: str) -> None:
        self.story.append(f"{time.strftime('%H:%M:%S')} {event}")
        print(self.story[-1], flush=True)

    def submit(self) -> None:
        min_workers = self._rng.choice([1, 1, 2, 3])
        max_workers, priority = self._rng.randint(min_workers, 4), self._rng.choice([0, 0, 1, 2])
        name = f"job-{len(self.all)}"
        self.record(f"{name} is submitted: {min_workers} to {max_workers} workers, priority {priority}")
        self.all.append(
            self._jobs.train(
                name, max_workers, "--queue", f"--min_workers={min_workers}", f"--max_workers={max_workers}",
                f"--priority={priority}",
                slow=True, pause_s=PAUSE_S,
            )
        )  # fmt: skip

    def unfinished(self) -> list[Job]:
        return [job for job in self.all if not job.output.exists()]

    def count_live_workers(self) -> int:
        live_workers = 0
        for job in self.all:
            record = LauncherRecord.load(job.directory.launcher)
            replicas = record.replicas.values() if record else ()
            live_workers += sum(start_ticks(replica.pid) == replica.start_ticks for replica in replicas)
        return live_workers

    def kill_something(self, scheduler: Scheduler) -> None:
        victim = self._rng.choice(["scheduler", "scheduler", "master", "job"])
        running = [job for job in self.unfinished() if is_running(job.directory)]
        if victim == "scheduler":
            self.record("kill -9 of the scheduler")
            scheduler.end(signal.SIGKILL)
            time.sleep(self._rng.uniform(0.0, 3.0))  # how long the fault lasts
            scheduler.start(BUDGET)
        elif running:
            job = self._rng.choice(running)
            self.record(f"kill -9 of {victim} {job.name}")
            with contextlib.suppress(ProcessLookupError, AssertionError):
                job.kill_master() if victim == "master" else processes.kill_processes(job.directory)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 4 + 600)
def test_random_kills_under_the_scheduler_change_no_bit(jobs: Jobs, scheduler: Scheduler) -> None:
    print(f"CHAOS_SEED={SEED}", flush=True)
    undisturbed = jobs.train("undisturbed", 1).digest()
    crowd = Crowd(jobs, random.Random(SEED))
    scheduler.start(BUDGET)
    rng = random.Random(SEED + 1)
    deadline, next_kill_at, live_workers = time.monotonic() + SECONDS, time.monotonic() + 10.0, [0]

    def is_over() -> bool:
        nonlocal next_kill_at
        if len(crowd.unfinished()) < AT_ONCE:
            crowd.submit()
        if time.monotonic() >= next_kill_at:
            crowd.kill_something(scheduler)
            next_kill_at = time.monotonic() + rng.uniform(4.0, 12.0)
        live_workers.append(crowd.count_live_workers())
        return time.monotonic() >= deadline

    until("the chaos is over", is_over, SECONDS + 300.0)
    for job in crowd.all:
        job.hurry()

    bits = {}
    for job in crowd.all:
        until(f"{job.name} is over", lambda job=job: not scheduler.queue.has_job(job.name), 300.0, tell=job.story)  # type: ignore[misc]
        bits[job.name] = job.digest()

    assert set(bits.values()) == {undisturbed}, "\n".join(crowd.story)
    assert len(bits) == len(crowd.all)
    assert max(live_workers) <= BUDGET, f"{max(live_workers)} workers were alive at once"
