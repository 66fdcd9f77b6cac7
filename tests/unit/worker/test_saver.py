"""Training when a checkpoint cannot be written."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticdl.checkpoint import store
from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.errors import CheckpointFailed, SpecError, StoreUnavailable
from elasticdl.model.callbacks import Callback
from elasticdl.worker import saver as saver_module
from elasticdl.worker.master_connection import MasterConnection
from elasticdl.worker.saver import CheckpointSaver, SaverOptions
from tests.waiting import until


class State:
    callbacks: list[Callback] = []

    def capture(self) -> CapturedState:
        return CapturedState(7, 70, {}, {})


class Disk:
    """Replaces `store.write`: fails while it has an error to raise."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.attempts = threading.Semaphore(0)

    def __call__(self, directory: Path, captured: CapturedState, *arguments: Any) -> Path:
        self.attempts.release()
        if self.error is not None:
            raise self.error
        return directory / "checkpoint"


def start_saver(
    written: list[str],
    notices: list[str] | None = None,
    directory: Path = Path("/place"),
    rescue_directories: Sequence[Path] = (),
) -> CheckpointSaver:
    reported: list[str] = [] if notices is None else notices
    master = SimpleNamespace(
        report_losses=lambda: None,
        timing=SimpleNamespace(heartbeat_interval_s=0.01),
        report_checkpoint=lambda step, path, *durations: written.append(path),
        report_notice=lambda kind, reason, step: reported.append(f"{kind} of step {step}: {reason}"),
        wait_for_message=lambda seconds: None,
    )
    saver = CheckpointSaver(
        State(),
        lambda step, directory: lambda target: {},
        cast(MasterConnection, master),
        SaverOptions(directory, 3, {}, retry_s=0.0, rescue_directories=rescue_directories),
    )
    saver.start()
    return saver


def test_an_unreachable_store_loses_one_checkpoint_and_training_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, written = Disk(StoreUnavailable("s3://bucket: the store did not answer for 60 s")), list[str]()
    monkeypatch.setattr(store, "write_checkpoint", disk)
    saver = start_saver(written)

    saver.save()
    assert disk.attempts.acquire(timeout=60)
    saver.save()  # does not raise
    disk.error = None
    saver.save_and_wait()

    assert written[-1:] == ["/place/checkpoint"]


def test_the_last_checkpoint_that_cannot_be_written_is_an_error_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        store, "write_checkpoint", Disk(StoreUnavailable("s3://bucket: the store did not answer for 60 s"))
    )

    with pytest.raises(CheckpointFailed, match="the last checkpoint cannot be written: s3://bucket: the store did not"):
        start_saver([]).save_and_wait()


FULL = CheckpointFailed("cannot write /place/checkpoint-000000007: No space left on device")


def test_a_checkpoint_on_a_full_disk_is_retried_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, written, notices = Disk(FULL), list[str](), list[str]()
    monkeypatch.setattr(store, "write_checkpoint", disk)
    monkeypatch.setattr(saver_module, "FIRST_RETRY_S", 0.001)
    saver = start_saver(written, notices)

    saver.save()
    for _ in range(3):
        assert disk.attempts.acquire(timeout=60), "it is tried again though nobody asks for another"
    disk.error = None

    until("the checkpoint", lambda: written == ["/place/checkpoint"])
    assert len(notices) == 1, "said once, however often it fails"
    assert notices[0].startswith("checkpoint-failed of step 7: cannot write")


def test_an_unexpected_error_does_not_end_the_thread_that_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, written = Disk(MemoryError("no room for the copy")), list[str]()
    monkeypatch.setattr(store, "write_checkpoint", disk)
    saver = start_saver(written)

    saver.save()
    assert disk.attempts.acquire(timeout=60)
    disk.error = None
    saver.save_and_wait()

    assert written[-1:] == ["/place/checkpoint"]


def test_a_last_checkpoint_that_cannot_be_stored_is_saved_elsewhere_and_the_error_says_where(tmp_path: Path) -> None:
    full = tmp_path / "no-directory"
    full.write_text("")  # a file that cannot hold a directory acts as a full disk

    with pytest.raises(CheckpointFailed, match=f"--checkpoint_dir_for_init={tmp_path}/rescued/checkpoint-000000007"):
        start_saver([], directory=full, rescue_directories=[full, tmp_path / "rescued"]).save_and_wait()

    assert store.read_checkpoint(tmp_path / "rescued" / "checkpoint-000000007")[0].step == 7


def test_a_checkpoint_that_the_store_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "write_checkpoint", Disk(SpecError("s3://bucket: the store refuses it")))

    with pytest.raises(SpecError, match="the store refuses it"):
        start_saver([]).save_and_wait()
