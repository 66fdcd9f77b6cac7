"""What becomes of training when a checkpoint cannot be written."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticdl.checkpoint import store
from elasticdl.checkpoint.image import Image
from elasticdl.errors import CheckpointFailed, SpecError, StoreUnavailable
from elasticdl.model.callbacks import Callback
from elasticdl.worker.link import Link
from elasticdl.worker.saving import Saver


class State:
    callbacks: list[Callback] = []

    def capture(self) -> Image:
        return Image(7, 70, {}, {})


class Disk:
    """Stands for `store.write`: fails while it has an error to raise."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.asked = threading.Semaphore(0)

    def __call__(self, directory: Path, image: Image, *rest: Any) -> Path:
        self.asked.release()
        if self.error is not None:
            raise self.error
        return directory / "checkpoint"


def saver(told: list[str], reply_s: float = 0.0) -> Saver:
    timing = SimpleNamespace(reply_s=reply_s, heartbeat_s=0.01)
    link = SimpleNamespace(
        report_losses=lambda: None,
        timing=timing,
        checkpoint=lambda step, path, *rest: told.append(path),
        wait_end=lambda seconds: None,
    )
    return Saver(
        State(), lambda step, directory: lambda place: {}, cast(Link, link), Path("/place"), 3, {}, one_at_a_time=False
    )


def test_a_store_that_is_away_costs_a_checkpoint_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, told = Disk(StoreUnavailable("s3://bucket: the store did not answer for 60 s")), list[str]()
    monkeypatch.setattr(store, "write", disk)
    saving = saver(told)

    saving.save()
    assert disk.asked.acquire(timeout=60)
    saving.save()  # does not raise
    disk.error = None
    saving.finish()

    assert told[-1:] == ["/place/checkpoint"]


def test_the_last_checkpoint_that_cannot_be_written_is_an_error_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "write", Disk(StoreUnavailable("s3://bucket: the store did not answer for 60 s")))

    with pytest.raises(CheckpointFailed, match="the last checkpoint cannot be written: s3://bucket: the store did not"):
        saver([]).finish()


def test_a_refusal_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "write", Disk(SpecError("s3://bucket: the store refuses it")))

    with pytest.raises(SpecError, match="the store refuses it"):
        saver([]).finish()
