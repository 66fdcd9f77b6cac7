"""A model file for tests of whole jobs: `tiny.py`, which in some worker waits for a lock that nobody will release."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import tiny
import torch
from tiny import custom_data_reader as custom_data_reader
from tiny import dataset_fn as dataset_fn
from tiny import eval_metrics_fn as eval_metrics_fn
from tiny import loss as loss
from torch import Tensor, nn


class Deadlocking(nn.Module):
    """In forward pass number `at` of a process. `who`: all, others (than worker-0), or the first to make the file.

    `native`: in native code that does not let go of the interpreter, so that no thread of the process goes on.
    """

    def __init__(self, slow: str, pause_s: float, who: str, at: int, native: bool) -> None:
        super().__init__()
        self.net = tiny.forward(slow, pause_s)
        self._who, self._left, self._native = who, at, native

    def forward(self, features: Tensor) -> Tensor:
        self._left -= 1
        if self._left == 0 and self._is_chosen():
            self.wait_for_ever()
        predictions: Tensor = self.net(features)
        return predictions

    def _is_chosen(self) -> bool:
        worker = os.environ["ELASTICDL_WORKER"]
        if self._who in ("all", "others"):
            return self._who == "all" or worker != "worker-0"
        try:
            Path(self._who).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def wait_for_ever(self) -> None:
        if self._native:
            library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
            for _ in range(2):  # no signal interrupts the second time
                library.pthread_mutex_lock(mutex)
        lock, is_held = threading.Lock(), threading.Event()

        def hold() -> None:
            with lock:
                is_held.set()
                threading.Event().wait()

        threading.Thread(target=hold, name="holder", daemon=True).start()
        is_held.wait()
        lock.acquire()


def forward(slow: str = "", pause_s: float = 0.02, who: str = "all", at: int = 40, native: bool = False) -> nn.Module:
    return Deadlocking(slow, pause_s, who, at, native)


def optimizer(parameters: Iterable[Tensor], lr: float = 0.01) -> torch.optim.Optimizer:
    return tiny.optimizer(parameters, lr)
