"""Real jobs whose checkpoints are on a full disk: a small separate file system."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticdl.checkpoint import manifest
from tests.integration.job import PATIENCE_S, Jobs
from tests.waiting import until


class Disk:
    """A small file system, and a file that fills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self._filler = folder / "filler"

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as file:
            for block_bytes in (1 << 16, 1 << 9, 1):
                try:
                    while file.write(bytes(block_bytes)) == block_bytes:
                        pass
                except OSError:
                    continue  # full for blocks of this size

    def free(self) -> None:
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with _mounted(tmp_path / "disk", "1m") as disk:
        yield disk


@pytest.fixture
def large_disk(tmp_path: Path) -> Iterator[Disk]:
    with _mounted(tmp_path / "large", "64m") as disk:
        yield disk


@contextlib.contextmanager
def _mounted(folder: Path, size: str) -> Iterator[Disk]:
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield Disk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_is_full_for_a_while_only_loses_checkpoints(jobs: Jobs, undisturbed: str, disk: Disk) -> None:
    job = jobs.train(
        "full", 2, "--checkpoint_dir", str(disk.checkpoints), "--checkpoint_steps", "5", "--keep_checkpoint_max", "1",
        slow=True,
    )  # fmt: skip
    disk.fill()

    failed = job.wait_event("checkpoint-failed")
    assert "No space left on device" in failed["reason"]
    assert "training goes on" in failed["reason"]
    job.wait_members(2, step=failed["step"] + 5)
    disk.free()
    written = job.wait_event("checkpoint")
    assert written["at"] > failed["at"]
    disk.fill()  # the one there is stays, though it is the only one and newer ones are due
    failed = job.wait_event("checkpoint-failed", after=written["at"])
    assert [manifest.parse_step(path) for path in manifest.list_checkpoints(disk.checkpoints)] != []
    disk.free()
    job.hurry()

    assert job.digest() == undisturbed
    assert job.kinds().count("worker-lost") == 0


@pytest.mark.slow
def test_a_last_checkpoint_without_space_in_time_is_written_elsewhere(jobs: Jobs, disk: Disk) -> None:
    job = jobs.train(
        "elsewhere", 1, "--checkpoint_dir", str(disk.checkpoints), "--checkpoint_retry_s", "0.5", "--max_steps", "4",
        slow=True,
    )  # fmt: skip
    disk.fill()
    job.hurry()
    result = job.result()

    rescued = job.directory.root / "rescued"
    assert (result["phase"], result["exit_code"]) == ("failed", 1)
    assert "No space left on device" in result["reason"]
    assert f"continue with --checkpoint_dir_for_init={rescued}/checkpoint-000000004" in result["reason"]
    job.wait_gone()

    again = jobs.train("again", 1, "--checkpoint_dir_for_init", str(rescued / "checkpoint-000000004"))
    assert again.result()["phase"] == "succeeded"


def test_a_master_without_disk_space_restarts_when_there_is_some(undisturbed: str, large_disk: Disk) -> None:
    jobs = Jobs(large_disk.folder)
    try:
        job = jobs.train("homeless", 2, slow=True)
        job.wait_members(2, step=2)
        large_disk.fill()
        until("the master ends for lack of space", lambda: "master" not in job.living(), PATIENCE_S)
        large_disk.free()
        job.hurry()

        assert job.digest() == undisturbed
        assert "master-restarted" in job.kinds() and "worker-lost" not in job.kinds()
        job.wait_gone()
    finally:
        jobs.end()
