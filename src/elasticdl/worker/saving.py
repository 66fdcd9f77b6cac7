"""Checkpoints from a running worker: a copy is taken between two steps, a thread writes it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from elasticdl.checkpoint import store
from elasticdl.checkpoint.image import Image
from elasticdl.checkpoint.store import Beside
from elasticdl.errors import CheckpointFailed, ElasticDLError, TransientError
from elasticdl.model.callbacks import BestMetric, Callback
from elasticdl.storage.place import Place
from elasticdl.worker.link import Link
from elasticdl.worker.training import UNREPORTED

_log = logging.getLogger(__name__)


class State(Protocol):
    """What is saved."""

    callbacks: list[Callback]

    def capture(self) -> Image: ...


class Saver:
    def __init__(
        self,
        state: State,
        begin_cut: Callable[[int, Place], Beside],
        link: Link,
        directory: Place,
        keep: int,
        extra: dict[str, Any],
        *,
        one_at_a_time: bool,
        is_on: bool = True,
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """`begin_cut` lets the ps copy their rows, which are then written beside the rest.

        `one_at_a_time`: while a checkpoint is written, no other begins; a ps has one copy of its rows at most.
        `files`: of the model file, for every checkpoint.
        `is_on`: False where nobody could read a checkpoint afterwards; then none is written.
        """
        self._is_on = is_on
        self._files = files
        self._state = state
        self._begin_cut = begin_cut
        self._link = link
        self._directory = directory
        self._keep = keep
        self._extra = extra
        self._one_at_a_time = one_at_a_time
        self._changed = threading.Condition()
        self._pending: tuple[Image, Beside, float] | None = None
        self._is_writing = False
        self._written = 0  # checkpoints
        self._failure: ElasticDLError | None = None
        self._skipped = ""  # why the newest one was not written
        threading.Thread(target=self._run, name="elasticdl-saver", daemon=True).start()

    def save(self) -> None:
        """Copy the state now, write it in the background. A copy that still waits is replaced by the newer one."""
        self._raise_failure()
        if not self._is_on:
            return
        with self._changed:
            if self._one_at_a_time and self._is_busy:
                _log.warning("a checkpoint is skipped: the one before is still being written")
                return
        started = time.monotonic()
        image = self._state.capture()
        image.meta.pop(UNREPORTED, None)
        self._link.report_losses()  # whoever goes on from this checkpoint does not know them
        try:
            rows = self._begin_cut(image.step, self._directory)
        except TransientError as exc:  # a ps is lost, or slots move: training goes on, and so will the next one
            self._skipped = str(exc)
            _log.warning("checkpoint of step %d skipped: %s", image.step, exc)
            return
        copy_s = time.monotonic() - started
        with self._changed:
            if self._pending is not None:
                _log.warning("checkpoint of step %d skipped: the disk is slower than that", self._pending[0].step)
            self._pending = (image, rows, copy_s)
            self._changed.notify_all()

    def finish(self) -> None:
        """Write the state as it is now and wait for it. Raises CheckpointFailed."""
        if not self._is_on:
            return
        self._wait()
        until, written = time.monotonic() + self._link.timing.reply_s, self._written
        while self._written == written:
            self.save()
            self._wait()
            if self._written == written:
                if time.monotonic() > until:
                    raise CheckpointFailed(f"the last checkpoint cannot be written: {self._skipped}")
                self._link.wait_end(self._link.timing.heartbeat_s)

    @property
    def _is_busy(self) -> bool:
        return bool(self._pending or self._is_writing)

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failure or not self._is_busy)
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _best_step(self) -> int | None:
        steps = [c.best_step for c in self._state.callbacks if isinstance(c, BestMetric)]
        return next((step for step in steps if step is not None), None)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending is not None)
                assert self._pending is not None
                (image, rows, copy_s), self._pending, self._is_writing = self._pending, None, True
            started = time.monotonic()
            try:
                path = store.write(
                    self._directory, image, self._extra, self._keep, self._best_step(), rows, self._files
                )
                self._link.checkpoint(image.step, str(path), time.monotonic() - started, copy_s)
                self._written += 1
            except TransientError as exc:
                self._skipped = str(exc)
                _log.warning("checkpoint of step %d given up: %s", image.step, exc)
            except ElasticDLError as exc:
                self._failure = exc  # raised in the training thread, at the next step
            finally:
                with self._changed:
                    self._is_writing = False
                    self._changed.notify_all()
