"""Random deaths of random processes for a bounded time; the final bits are those of an undisturbed run.

`make chaos`, or CHAOS_SECONDS=300 CHAOS_SEED=7 make chaos. The seed is printed: it repeats the choices, not the timing.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.job import LOGICAL_RANKS, STEPS_PER_EPOCH, Job, Jobs

SECONDS = float(os.environ.get("CHAOS_SECONDS", "90"))
SEED = int(os.environ.get("CHAOS_SEED", str(random.SystemRandom().randrange(10**6))))
# A step takes at least a pause, so the plan cannot be done before the chaos is over.
PAUSE_S = 0.06
EPOCHS = 1 + int(SECONDS / (PAUSE_S * STEPS_PER_EPOCH))


class Chaos:
    """What is done to a job, one random thing at a time."""

    def __init__(self, job: Job, random: random.Random) -> None:
        self._job = job
        self._random = random
        self._stopped: list[tuple[float, int]] = []  # when to go on, process
        self.story: list[str] = []

    def strike(self, now: float) -> None:
        acts: list[tuple[float, Callable[[float], str]]] = [
            (4, lambda now: self._signal(signal.SIGKILL)),
            (3, lambda now: self._signal(signal.SIGTERM)),
            (2, self._freeze),
            (2, lambda now: self._kill_master()),
            (0.5, lambda now: self._kill_launcher()),
            (3, lambda now: self._scale()),
            (1, lambda now: self._kill_all()),
        ]
        (act,) = self._random.choices([act for _, act in acts], [weight for weight, _ in acts])
        with contextlib.suppress(ProcessLookupError):  # it was faster
            self._tell(act(now))

    def thaw(self, now: float) -> None:
        for at, pid in [entry for entry in self._stopped if entry[0] <= now]:
            self._stopped.remove((at, pid))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                self._tell(f"SIGCONT {pid}")

    def _workers(self) -> list[int]:
        return [running.pid for name, running in self._job.record().replicas.items() if name in self._job.living()]

    def _signal(self, number: signal.Signals) -> str:
        workers = self._workers()
        if not workers:
            return "no worker to strike"
        pid = self._random.choice(workers)
        os.kill(pid, number)
        return f"{number.name} {pid}"

    def _freeze(self, now: float) -> str:
        told = self._signal(signal.SIGSTOP)
        pid = int(told.split()[-1]) if told.startswith("SIGSTOP") else 0
        if pid:
            self._stopped.append((now + self._random.uniform(0.2, 4.0), pid))
        return told

    def _kill_master(self) -> str:
        self._job.kill_master()
        return "SIGKILL master"

    def _kill_launcher(self) -> str:
        os.kill(self._job.record().launcher.pid, signal.SIGKILL)
        return "SIGKILL launcher"

    def _kill_all(self) -> str:
        workers = self._workers()
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        return f"SIGKILL all of {workers}"

    def _scale(self) -> str:
        wish = self._random.randint(1, LOGICAL_RANKS)
        self._job.scale(wish)
        return f"scale to {wish}"

    def _tell(self, what: str) -> None:
        self.story.append(f"{time.time():.2f} {what}")
        print(self.story[-1], flush=True)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    started = Jobs(tmp_path)
    yield started
    started.end()


@pytest.mark.slow
@pytest.mark.timeout(int(4 * SECONDS + 300))
def test_a_job_in_chaos_ends_with_the_bits_of_an_undisturbed_one(jobs: Jobs) -> None:
    print(f"\nCHAOS_SEED={SEED} CHAOS_SECONDS={SECONDS:g}", flush=True)
    plan = ("--num_epochs", str(EPOCHS))
    calm = jobs.train("calm", 1, *plan)
    expected = calm.digest()
    calm.wait_gone()

    job = jobs.train("chaos", 3, *plan, "--min_workers", "1", "--checkpoint_steps", "25", slow=True, pause_s=PAUSE_S)
    job.wait_members(3, step=2)
    chaos, choice = Chaos(job, random.Random(SEED)), random.Random(SEED + 1)
    until = time.monotonic() + SECONDS
    next_at = time.monotonic()
    while (now := time.monotonic()) < until and not job.directory.result.exists():
        chaos.thaw(now)
        if now >= next_at:
            chaos.strike(now)
            next_at = now + choice.uniform(0.3, 4.0)
        time.sleep(0.02)
    chaos.thaw(float("inf"))
    was_running = not job.directory.result.exists()
    job.hurry()

    result = job.result()
    told = "\n".join([f"CHAOS_SEED={SEED}", *chaos.story, str(result), job.story()])
    assert result["phase"] == "succeeded", told
    assert job.digest() == expected, told
    assert result["records"] == result["total_records"] == calm.result()["records"], told
    assert was_running, "the job was over before the chaos"
    job.wait_gone()
