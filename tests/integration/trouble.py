"""Makes a user's model fail when a test asks for it: it raises or deadlocks, once, in one process."""

from __future__ import annotations

import os
import threading
from enum import StrEnum
from pathlib import Path

from torch import nn


class Trouble(StrEnum):
    RAISE = "raise"
    DEADLOCK = "deadlock"


def request_trouble(directory: Path, pid: int, trouble: Trouble) -> Path:
    """Creates the file that the process finds, and removes, before its next batch."""
    request = _request_file(directory, pid, trouble)
    request.touch()
    return request


def with_trouble(model: nn.Module, directory: str) -> nn.Module:
    """Returns the model; it fails when `request_trouble` asks for it."""
    if directory:
        model.register_forward_pre_hook(lambda *_: _fail_if_requested(Path(directory)))
    return model


def _fail_if_requested(directory: Path) -> None:
    for trouble in Trouble:
        request = _request_file(directory, os.getpid(), trouble)
        if not request.exists():
            continue
        request.unlink()
        if trouble is Trouble.RAISE:
            raise RuntimeError("this model was asked to fail once")
        threading.Event().wait()


def _request_file(directory: Path, pid: int, trouble: Trouble) -> Path:
    return directory.with_name(f"{directory.name}-{pid}-{trouble}")
