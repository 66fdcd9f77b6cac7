"""Checkpoints from a running worker: a copy is taken between two steps, a thread writes it.

A checkpoint that cannot be written, on a full disk or because a store is away, costs nothing but itself: the state is
fine, so training goes on, the event log says it, and the copy is tried again until the next one replaces it. Only the
last checkpoint of a job must succeed; it is tried again for `checkpoint.retry_s` seconds.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from elasticdl import watchdog
from elasticdl.checkpoint import store
from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.checkpoint.store import WriteExtraFiles
from elasticdl.errors import CheckpointFailed, ElasticDLError, TransientError
from elasticdl.model.callbacks import BestMetric, Callback
from elasticdl.storage.paths import AnyPath
from elasticdl.vital import VitalThread
from elasticdl.worker.master_connection import MasterConnection
from elasticdl.worker.training.state import UNREPORTED_KEY

CHECKPOINT_FAILED = "checkpoint-failed"  # the kind of the notice
FIRST_RETRY_S, MAX_RETRY_S = 1.0, 30.0  # between two attempts

_log = logging.getLogger(__name__)


class Capturable(Protocol):
    """What is saved."""

    callbacks: list[Callback]

    def capture(self) -> CapturedState: ...


class _StateCopy(NamedTuple):
    """A state that is to be written."""

    image: CapturedState
    rows: WriteExtraFiles
    copy_s: float


class CheckpointSaver:
    def __init__(
        self,
        state: Capturable,
        begin_cut: Callable[[int, AnyPath], WriteExtraFiles],
        link: MasterConnection,
        directory: AnyPath,
        keep: int,
        extra: dict[str, Any],
        *,
        one_at_a_time: bool,
        retry_s: float,
        rescue: Sequence[Path] = (),
        is_on: bool = True,
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """`begin_cut` lets the ps copy their rows, which are then written beside the rest.

        `one_at_a_time`: while a checkpoint is written, no other begins; a ps has one copy of its rows at most.
        `retry_s`: for how long `finish` tries. `rescue`: directories to try when the last checkpoint finds no place.
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
        self._retry_s = retry_s
        self._rescue = rescue
        self._changed = threading.Condition()
        self._pending: _StateCopy | None = None
        self._failed: _StateCopy | None = None  # waits for another attempt
        self._retry_at = 0.0
        self._pause_s = FIRST_RETRY_S
        self._is_writing = False
        self._written = 0  # checkpoints
        self._problem: Exception | None = None  # why the newest one was not written
        VitalThread(self._run, name="elasticdl-saver").start()

    def save(self) -> None:
        """Copy the state now, write it in the background. A copy that still waits is replaced by the newer one."""
        if not self._is_on:
            return
        with self._changed:
            if self._one_at_a_time and self._is_busy:
                _log.warning("a checkpoint is skipped: the one before is still being written")
                return
        started = time.monotonic()
        image = self._state.capture()
        image.meta.pop(UNREPORTED_KEY, None)
        self._link.report_losses()  # whoever goes on from this checkpoint does not know them
        try:
            rows = self._begin_cut(image.step, self._directory)
        except TransientError as exc:  # a ps is lost, or slots move: training goes on, and so will the next one
            self._report_failure(image.step, exc)
            return
        copied = _StateCopy(image, rows, time.monotonic() - started)
        with self._changed:
            if self._pending is not None:
                _log.warning("checkpoint of step %d skipped: the disk is slower than that", self._pending.image.step)
            self._pending, self._failed = copied, None
            self._changed.notify_all()

    def save_and_wait(self) -> None:
        """Write the state as it is now and wait for it. Raises CheckpointFailed, or what refused it for good."""
        if self._is_on:
            with watchdog.pause_watchdog("writes the last checkpoint"):
                self._save_until_written()

    def _save_until_written(self) -> None:
        self._wait()
        until, written, pause_s = time.monotonic() + self._retry_s, self._written, self._link.timing.heartbeat_s
        while self._written == written:
            self.save()
            self._wait()
            if self._written == written:
                if time.monotonic() > until:
                    raise self._make_final_error()
                self._link.wait_for_message(pause_s)
                pause_s = min(2 * pause_s, MAX_RETRY_S)

    @property
    def _is_busy(self) -> bool:
        return bool(self._pending or self._is_writing)

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_busy)

    def _best_step(self) -> int | None:
        steps = [c.best_step for c in self._state.callbacks if isinstance(c, BestMetric)]
        return next((step for step in steps if step is not None), None)

    def _run(self) -> None:
        while True:
            copied = self._next()
            try:
                self._write(copied)
            except Exception as exc:  # the thread must outlive it, or `finish` would wait for ever
                if not isinstance(exc, ElasticDLError):
                    _log.error("%s", traceback.format_exc())
                self._report_failure(copied.image.step, exc)
                self._schedule_retry(copied)
            finally:
                with self._changed:
                    self._is_writing = False
                    self._changed.notify_all()

    def _next(self) -> _StateCopy:
        """The newest copy to write, or the one that failed before, when its time has come."""
        with self._changed:
            while self._pending is None:
                left_s = self._retry_at - time.monotonic() if self._failed is not None else None
                if left_s is not None and left_s <= 0:
                    break
                self._changed.wait(left_s)
            copied = self._pending or self._failed
            assert copied is not None
            self._pending, self._failed, self._is_writing = None, None, True
            return copied

    def _write(self, copied: _StateCopy) -> None:
        started, image = time.monotonic(), copied.image
        path = store.write_checkpoint(
            self._directory, image, self._extra, self._keep, self._best_step(), copied.rows, self._files
        )
        self._link.report_checkpoint(image.step, str(path), time.monotonic() - started, copied.copy_s)
        self._written += 1
        self._problem, self._pause_s = None, FIRST_RETRY_S

    def _schedule_retry(self, copied: _StateCopy) -> None:
        """Try it again later, unless a newer one is there. The rows of a cut are gone: there the next one counts."""
        with self._changed:
            if self._pending is None and not self._one_at_a_time:
                self._failed, self._retry_at = copied, time.monotonic() + self._pause_s
                self._pause_s = min(2 * self._pause_s, MAX_RETRY_S)

    def _report_failure(self, step: int, exc: Exception) -> None:
        """Say once that checkpoints fail, until one is written; the log has every attempt."""
        _log.warning("checkpoint of step %d not written, training goes on: %s", step, exc)
        is_first, self._problem = self._problem is None, exc
        if is_first:
            self._link.report_notice(
                CHECKPOINT_FAILED, f"{exc}; the state is fine: training goes on, and it is tried again", step
            )

    def _make_final_error(self) -> ElasticDLError:
        """What to raise when the last checkpoint finds no place: it names where the state is kept instead."""
        problem = self._problem
        kept = "" if self._one_at_a_time else self._write_rescue_copy()
        if isinstance(problem, ElasticDLError) and not isinstance(problem, TransientError) and not kept:
            return problem
        return CheckpointFailed(f"the last checkpoint cannot be written: {problem}{kept}")

    def _write_rescue_copy(self) -> str:
        image = self._state.capture()
        image.meta.pop(UNREPORTED_KEY, None)
        for directory in self._rescue:
            try:
                path = store.write_checkpoint(directory, image, self._extra, self._keep, None, files=self._files)
            except ElasticDLError as exc:
                _log.warning("%s", exc)
            else:
                return f"; the state of step {image.step} is in {path}: go on with --checkpoint_dir_for_init={path}"
        return ""
