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
AT_ONCE = 4  # jobs that are not over
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
    """Jobs that come as others end."""

    def __init__(self, jobs: Jobs, chance: random.Random) -> None:
        self._jobs = jobs
        self._chance = chance
        self.all: list[Job] = []
        self.story: list[str] = []

    def tell(self, event: str) -> None:
        self.story.append(f"{time.strftime('%H:%M:%S')} {event}")
        print(self.story[-1], flush=True)

    def submit(self) -> None:
        min_workers = self._chance.choice([1, 1, 2, 3])
        max_workers, priority = self._chance.randint(min_workers, 4), self._chance.choice([0, 0, 1, 2])
        name = f"job-{len(self.all)}"
        self.tell(f"{name} comes: {min_workers} to {max_workers} workers, priority {priority}")
        self.all.append(
            self._jobs.train(
                name, max_workers, "--queue", f"--min_workers={min_workers}", f"--max_workers={max_workers}",
                f"--priority={priority}",
                slow=True, pause_s=PAUSE_S,
            )
        )  # fmt: skip

    def unfinished(self) -> list[Job]:
        return [job for job in self.all if not job.output.exists()]

    def workers(self) -> int:
        """That live, of all jobs."""
        live_workers = 0
        for job in self.all:
            record = LauncherRecord.load(job.directory.launcher)
            replicas = record.replicas.values() if record else ()
            live_workers += sum(start_ticks(replica.pid) == replica.start_ticks for replica in replicas)
        return live_workers

    def strike(self, scheduler: Scheduler) -> None:
        act = self._chance.choice(["scheduler", "scheduler", "master", "job"])
        running = [job for job in self.unfinished() if is_running(job.directory)]
        if act == "scheduler":
            self.tell("kill -9 of the scheduler")
            scheduler.end(signal.SIGKILL)
            time.sleep(self._chance.uniform(0.0, 3.0))  # the fault lasts so long
            scheduler.start(BUDGET)
        elif running:
            job = self._chance.choice(running)
            self.tell(f"kill -9 of {act} {job.name}")
            with contextlib.suppress(ProcessLookupError, AssertionError):
                job.kill_master() if act == "master" else processes.kill_processes(job.directory)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 4 + 600)
def test_random_deaths_under_the_scheduler_change_no_bit(jobs: Jobs, scheduler: Scheduler) -> None:
    print(f"CHAOS_SEED={SEED}", flush=True)
    undisturbed = jobs.train("undisturbed", 1).digest()
    crowd = Crowd(jobs, random.Random(SEED))
    scheduler.start(BUDGET)
    chance = random.Random(SEED + 1)
    deadline, strike_at, lived = time.monotonic() + SECONDS, time.monotonic() + 10.0, [0]

    def is_over() -> bool:
        nonlocal strike_at
        if len(crowd.unfinished()) < AT_ONCE:
            crowd.submit()
        if time.monotonic() >= strike_at:
            crowd.strike(scheduler)
            strike_at = time.monotonic() + chance.uniform(4.0, 12.0)
        lived.append(crowd.workers())
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
    assert max(lived) <= BUDGET, f"{max(lived)} workers lived at once"
