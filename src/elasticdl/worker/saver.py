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
from dataclasses import dataclass, field
from pathlib import Path
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
    """A state that can be saved."""

    callbacks: list[Callback]

    def capture(self) -> CapturedState: ...


@dataclass(frozen=True)
class SaverOptions:
    """How the checkpoints of a job are written."""

    directory: AnyPath
    keep: int  # checkpoints
    metadata: dict[str, Any]
    retry_s: float  # how long `save_and_wait` retries
    one_at_a_time: bool = False  # no checkpoint begins while another is written: a ps has one copy of its rows at most
    rescue_directories: Sequence[Path] = ()  # tried if the last checkpoint cannot be written to `directory`
    is_on: bool = True  # False if a checkpoint could not be read afterwards; then none is written
    model_files: Mapping[str, bytes] = field(default_factory=dict)  # written into every checkpoint


class _StateCopy(NamedTuple):
    """A state that is to be written."""

    captured: CapturedState
    write_rows: WriteExtraFiles
    copy_s: float


class CheckpointSaver:
    """Copies the state between two steps, and writes it in a thread of its own once `start` was called."""

    def __init__(
        self,
        state: Capturable,
        begin_snapshot: Callable[[int, AnyPath], WriteExtraFiles],
        master: MasterConnection,
        options: SaverOptions,
    ) -> None:
        """`begin_snapshot` lets the ps copy their rows, which are then written beside the rest."""
        self._state = state
        self._begin_snapshot = begin_snapshot
        self._master = master
        self._options = options
        self._changed = threading.Condition()
        self._pending: _StateCopy | None = None
        self._failed: _StateCopy | None = None  # waits for another attempt
        self._retry_at = 0.0
        self._pause_s = FIRST_RETRY_S
        self._is_writing = False
        self._written = 0  # checkpoints
        self._problem: Exception | None = None  # why the newest checkpoint was not written

    def start(self) -> None:
        VitalThread(self._run, name="elasticdl-saver").start()

    def save(self) -> None:
        """Copy the state now, and write it in the background. It replaces a copy that still waits."""
        if not self._options.is_on:
            return
        with self._changed:
            if self._options.one_at_a_time and self._is_busy:
                _log.warning("a checkpoint is skipped: the one before is still being written")
                return
        started = time.monotonic()
        captured = self._state.capture()
        captured.meta.pop(UNREPORTED_KEY, None)
        self._master.report_losses()  # a worker that goes on from this checkpoint does not have them
        try:
            write_rows = self._begin_snapshot(captured.step, self._options.directory)
        except TransientError as exc:  # a ps is lost, or slots move: training goes on
            self._report_failure(captured.step, exc)
            return
        copied = _StateCopy(captured, write_rows, time.monotonic() - started)
        with self._changed:
            if self._pending is not None:
                _log.warning("checkpoint of step %d skipped: the disk is slower than that", self._pending.captured.step)
            self._pending, self._failed = copied, None
            self._changed.notify_all()

    def save_and_wait(self) -> None:
        """Write the state as it is now and wait for it. Raises CheckpointFailed, or the refusal of the store."""
        if self._options.is_on:
            with watchdog.pause_watchdog("writes the last checkpoint"):
                self._save_until_written()

    def _save_until_written(self) -> None:
        self._wait()
        deadline, written, pause_s = (
            time.monotonic() + self._options.retry_s,
            self._written,
            self._master.timing.heartbeat_interval_s,
        )
        while self._written == written:
            self.save()
            self._wait()
            if self._written == written:
                if time.monotonic() > deadline:
                    raise self._make_final_error()
                self._master.wait_for_message(pause_s)
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
            except Exception as exc:  # the thread must outlive it, or `save_and_wait` would wait forever
                if not isinstance(exc, ElasticDLError):
                    _log.error("%s", traceback.format_exc())
                self._report_failure(copied.captured.step, exc)
                self._schedule_retry(copied)
            finally:
                with self._changed:
                    self._is_writing = False
                    self._changed.notify_all()

    def _next(self) -> _StateCopy:
        """The newest copy to write, or the copy that failed before, once it is to be tried again."""
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
        started, captured = time.monotonic(), copied.captured
        path = store.write_checkpoint(
            self._options.directory,
            captured,
            self._options.metadata,
            self._options.keep,
            self._best_step(),
            copied.write_rows,
            self._options.model_files,
        )
        self._master.report_checkpoint(captured.step, str(path), time.monotonic() - started, copied.copy_s)
        self._written += 1
        self._problem, self._pause_s = None, FIRST_RETRY_S

    def _schedule_retry(self, copied: _StateCopy) -> None:
        """Try it again later, unless a newer copy is there, or the rows of this one are gone from the ps."""
        with self._changed:
            if self._pending is None and not self._options.one_at_a_time:
                self._failed, self._retry_at = copied, time.monotonic() + self._pause_s
                self._pause_s = min(2 * self._pause_s, MAX_RETRY_S)

    def _report_failure(self, step: int, exc: Exception) -> None:
        """Report once that checkpoints fail, until one is written; the log has every attempt."""
        _log.warning("checkpoint of step %d not written, training goes on: %s", step, exc)
        is_first, self._problem = self._problem is None, exc
        if is_first:
            self._master.report_notice(
                CHECKPOINT_FAILED, f"{exc}; the state is fine: training goes on, and it is tried again", step
            )

    def _make_final_error(self) -> ElasticDLError:
        """The error to raise if the last checkpoint cannot be written: it names where the state is saved instead."""
        problem = self._problem
        rescued = "" if self._options.one_at_a_time else self._write_rescue_copy()
        if isinstance(problem, ElasticDLError) and not isinstance(problem, TransientError) and not rescued:
            return problem
        return CheckpointFailed(f"the last checkpoint cannot be written: {problem}{rescued}")

    def _write_rescue_copy(self) -> str:
        """Write the state to the first rescue directory that takes it; a clause that says where, or nothing."""
        captured = self._state.capture()
        captured.meta.pop(UNREPORTED_KEY, None)
        for directory in self._options.rescue_directories:
            try:
                path = store.write_checkpoint(
                    directory,
                    captured,
                    self._options.metadata,
                    self._options.keep,
                    None,
                    files=self._options.model_files,
                )
            except ElasticDLError as exc:
                _log.warning("%s", exc)
            else:
                return (
                    f"; the state of step {captured.step} is in {path}: continue with --checkpoint_dir_for_init={path}"
                )
        return ""
