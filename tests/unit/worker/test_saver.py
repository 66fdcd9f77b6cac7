"""What becomes of training when a checkpoint cannot be written."""

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
from elasticdl.worker import saver as saving_module
from elasticdl.worker.master_connection import MasterConnection
from elasticdl.worker.saver import CheckpointSaver
from tests.waiting import until


class State:
    callbacks: list[Callback] = []

    def capture(self) -> CapturedState:
        return CapturedState(7, 70, {}, {})


class Disk:
    """Stands for `store.write`: fails while it has an error to raise."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.asked = threading.Semaphore(0)

    def __call__(self, directory: Path, image: CapturedState, *rest: Any) -> Path:
        self.asked.release()
        if self.error is not None:
            raise self.error
        return directory / "checkpoint"


def saver(
    told: list[str],
    notices: list[str] | None = None,
    directory: Path = Path("/place"),
    rescue: Sequence[Path] = (),
) -> CheckpointSaver:
    heard: list[str] = [] if notices is None else notices
    link = SimpleNamespace(
        report_losses=lambda: None,
        timing=SimpleNamespace(heartbeat_s=0.01),
        checkpoint=lambda step, path, *rest: told.append(path),
        notice=lambda kind, reason, step: heard.append(f"{kind} of step {step}: {reason}"),
        wait_end=lambda seconds: None,
    )
    return CheckpointSaver(
        State(), lambda step, directory: lambda place: {}, cast(MasterConnection, link), directory, 3, {},
        one_at_a_time=False, retry_s=0.0, rescue=rescue,
    )  # fmt: skip


def test_a_store_that_is_away_costs_a_checkpoint_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, told = Disk(StoreUnavailable("s3://bucket: the store did not answer for 60 s")), list[str]()
    monkeypatch.setattr(store, "write_checkpoint", disk)
    saving = saver(told)

    saving.save()
    assert disk.asked.acquire(timeout=60)
    saving.save()  # does not raise
    disk.error = None
    saving.save_and_wait()

    assert told[-1:] == ["/place/checkpoint"]


def test_the_last_checkpoint_that_cannot_be_written_is_an_error_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        store, "write_checkpoint", Disk(StoreUnavailable("s3://bucket: the store did not answer for 60 s"))
    )

    with pytest.raises(CheckpointFailed, match="the last checkpoint cannot be written: s3://bucket: the store did not"):
        saver([]).save_and_wait()


FULL = CheckpointFailed("cannot write /place/checkpoint-000000007: No space left on device")


def test_a_full_disk_costs_a_checkpoint_which_is_tried_again_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, told, notices = Disk(FULL), list[str](), list[str]()
    monkeypatch.setattr(store, "write_checkpoint", disk)
    monkeypatch.setattr(saving_module, "FIRST_RETRY_S", 0.001)
    saving = saver(told, notices)

    saving.save()
    for _ in range(3):
        assert disk.asked.acquire(timeout=60), "it is tried again though nobody asks for another"
    disk.error = None

    until("the checkpoint", lambda: told == ["/place/checkpoint"])
    assert len(notices) == 1, "said once, however often it fails"
    assert notices[0].startswith("checkpoint-failed of step 7: cannot write")


def test_what_nobody_foresaw_does_not_end_the_thread_that_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, told = Disk(MemoryError("no room for the copy")), list[str]()
    monkeypatch.setattr(store, "write_checkpoint", disk)
    saving = saver(told)

    saving.save()
    assert disk.asked.acquire(timeout=60)
    disk.error = None
    saving.save_and_wait()

    assert told[-1:] == ["/place/checkpoint"]


def test_a_last_checkpoint_without_a_place_is_kept_elsewhere_and_the_error_says_where(tmp_path: Path) -> None:
    full = tmp_path / "no-directory"
    full.write_text("")  # what cannot hold a directory stands for a disk that is full

    with pytest.raises(CheckpointFailed, match=f"--checkpoint_dir_for_init={tmp_path}/rescued/checkpoint-000000007"):
        saver([], directory=full, rescue=[full, tmp_path / "rescued"]).save_and_wait()

    assert store.read_checkpoint(tmp_path / "rescued" / "checkpoint-000000007")[0].step == 7


def test_a_refusal_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "write_checkpoint", Disk(SpecError("s3://bucket: the store refuses it")))

    with pytest.raises(SpecError, match="the store refuses it"):
        saver([]).save_and_wait()
