"""A person's code that goes wrong at the word of a test: it raises, or waits for ever. Once, in one process."""

from __future__ import annotations

import os
import threading
from enum import StrEnum
from pathlib import Path

from torch import nn


class Trouble(StrEnum):
    RAISE = "raise"
    DEADLOCK = "deadlock"


def ask(place: Path, pid: int, trouble: Trouble) -> Path:
    """A file that the process finds before its next batch, and removes then."""
    asked = _file(place, pid, trouble)
    asked.touch()
    return asked


def heeding(model: nn.Module, place: str) -> nn.Module:
    """The same model, which does what is asked at `place`."""
    if place:
        model.register_forward_pre_hook(lambda *_: _heed(Path(place)))
    return model


def _heed(place: Path) -> None:
    for trouble in Trouble:
        asked = _file(place, os.getpid(), trouble)
        if not asked.exists():
            continue
        asked.unlink()
        if trouble is Trouble.RAISE:
            raise RuntimeError("this model was asked to fail once")
        threading.Event().wait()


def _file(place: Path, pid: int, trouble: Trouble) -> Path:
    return place.with_name(f"{place.name}-{pid}-{trouble}")
