"""If workers are lost repeatedly at the same step, the job fails with the reason and keeps its state."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.job import STEPS, Job, Jobs
from tests.waiting import until

FAST = ("--timing", "relaunch_backoff_s=0.05")
LIMIT_BYTES = 64 << 20


def kills(step_of_worker: dict[int, int]) -> str:
    return ",".join(f"worker-{number}@{step}:begin=SIGKILL" for number, step in step_of_worker.items())


def wait_losses(job: Job, count: int) -> None:
    """Each is the start of a process, and machines differ."""
    until(f"{count} losses", lambda: job.kinds().count("worker-lost") >= count, 300.0, tell=job.story)


def test_workers_that_are_killed_at_the_same_step_repeatedly_count_as_failures_and_the_state_is_kept(
    jobs: Jobs,
) -> None:
    faults = kills(dict.fromkeys(range(20), 12))
    job = jobs.train(
        "again", 1, "--checkpoint_steps", "5", "--failure_budget", "1", *FAST, faults=faults, slow=True, pause_s=0.1
    )
    wait_losses(job, 4)
    job.hurry()
    result = job.result()

    assert (result["phase"], result["exit_code"]) == ("failed", 1)
    assert "loss 4 in a row with no progress since step 1" in result["reason"], result["reason"]
    assert "its memory peaked at" in result["reason"]
    assert "use a smaller --minibatch_size" in result["reason"]
    # Two are free, one is in the budget, the next is too many. Of the first the master may know a step less.
    assert job.kinds().count("worker-lost") in (4, 5)
    assert result["checkpoint_step"] in (5, 10), "the last one may be cut short"
    job.wait_gone()

    resumed = jobs.train("again", 1, "--resume")
    assert resumed.result()["phase"] == "succeeded", resumed.story()
    assert "state of step 10" in resumed.log("worker-0") or "state of step 5" in resumed.log("worker-0")


def test_workers_that_are_killed_with_steps_in_between_count_as_preempted(jobs: Jobs) -> None:
    faults = kills({number: 10 * (number + 1) for number in range(4)})
    job = jobs.train("on-and-on", 1, "--checkpoint_steps", "5", "--failure_budget", "0", *FAST, faults=faults)
    wait_losses(job, 4)
    result = job.result()

    assert result["phase"] == "succeeded", job.story()
    assert (result["step"], result["workers_failed"]) == (STEPS, 0)
    lost = [event["reason"] for event in job.events() if event["kind"] == "worker-lost"]
    assert len(lost) == 4
    assert all(reason.startswith("preempted: killed by SIGKILL") for reason in lost)


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup with little memory, below the one of this process."""
    group = make_cgroup()
    if group is None:
        pytest.skip("no cgroup with a limit of memory can be made here: that needs root and a memory controller")
    yield group
    group.rmdir()


def make_cgroup() -> Path | None:
    root = Path("/sys/fs/cgroup")
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    name = f"elasticdl-test-{uuid.uuid4().hex[:8]}"
    places = [
        (root / "memory" / p.strip("/"), "memory.limit_in_bytes") for _, c, p in lines if "memory" in c.split(",")
    ]
    places += [(root / p.strip("/"), "memory.max") for n, c, p in lines if n == "0" and not c]
    for parent, limit in places:
        group = parent / name
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(LIMIT_BYTES))
        except OSError:
            group.rmdir()
            continue
        return group
    return None


def test_a_worker_that_the_kernel_kills_for_lack_of_memory_is_reported_as_out_of_memory(
    jobs: Jobs, cgroup: Path
) -> None:
    job = jobs.train(
        "hoarder", 1, "--checkpoint_steps", "2", "--failure_budget", "1", *FAST,
        model="hoarder", params=f"cgroup={cgroup};at=30",
    )  # fmt: skip
    wait_losses(job, 2)
    result = job.result()
    job.wait_gone()

    assert (result["phase"], result["exit_code"]) == ("failed", 1), job.story()
    assert "workers failed 2 times, 1 are allowed" in result["reason"]
    assert "ran out of memory (its memory peaked at" in result["reason"]
    assert "the kernel killed it; use a smaller --minibatch_size" in result["reason"]
    lost = [event["reason"] for event in job.events() if event["kind"] == "worker-lost"]
    assert len(lost) == 2
    assert all(reason.startswith("ran out of memory") for reason in lost)
