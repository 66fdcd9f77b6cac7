"""The end of a worker's training: the last checkpoint, the export, and waiting to be released."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from elasticdl.checkpoint import manifest
from elasticdl.errors import (
    CheckpointCorrupt,
    DataUnavailable,
    ElasticDLError,
    LossNotFinite,
    TransientError,
    is_job_error,
)
from elasticdl.worker.context import ElasticTraining, WorkerContext

_WRITER_TURN_S = 5.0  # so long each waits for the one before it to write

_log = logging.getLogger(__name__)


def finish_training(line: WorkerContext, assembly: ElasticTraining, export: Callable[[str], None]) -> str:
    """What is left to do after the last step of this worker; returns the word of farewell.

    Whoever the master asks writes the last checkpoint and the model; all wait until that is done,
    since each of them could be asked.
    """
    engine, link = assembly.engine, line.master
    if engine.has_left:
        seat = line.rounds.current
        if link.must_save_state and engine.training.has_state:
            _save_on_request(line, assembly)
            return "the job has failed; its state is kept"
        if (link.is_orphaned or engine.is_orphaned) and engine.training.has_state:
            return _finish_without_master(line, assembly)
        if link.is_overdue and seat is not None and seat.group.size == 1:
            assembly.saver.save_and_wait()
        return "left at the next round" if link.is_leaving else "released"
    training = engine.training
    link.report_finished(training.step, training.records, engine.stop_reason, training.batch.progress)
    while not link.is_released:
        asked = link.next_export()
        if asked is None:
            if link.is_orphaned:
                return _finish_without_master(line, assembly)
            link.wait_for_message(line.spec.timing.heartbeat_s)
            continue
        while link.evaluation_results:
            training.notify_evaluation(*link.evaluation_results.popleft())
        assembly.saver.save_and_wait()
        if asked.path:
            export(asked.path)
        link.report_exported(asked.path)
    return engine.stop_reason or "all steps are done"


def _finish_without_master(line: WorkerContext, assembly: ElasticTraining) -> str:
    """There is no master any more, for one member at least: the first writes the state, the others see to it that it is
    there. A master that does come back finds that they have left, and starts others from it."""
    seat = line.rounds.current
    if seat is None or not _is_saved_by_another(line, assembly, seat.rank * _WRITER_TURN_S):
        assembly.saver.save_and_wait()
    return "the master is gone for good; the last checkpoint is written"


def _is_saved_by_another(line: WorkerContext, assembly: ElasticTraining, wait_s: float) -> bool:
    """Whether a checkpoint of this worker's state is there, every byte of it, within `wait_s` seconds."""
    directory, until = line.master.directory.checkpoints(line.spec), time.monotonic() + wait_s
    while time.monotonic() < until:
        with suppress(CheckpointCorrupt, TransientError):
            newest = manifest.find_newest(directory)
            if newest is not None and (manifest.parse_step(newest) or 0) >= assembly.engine.training.step:
                return True
        line.master.wait_for_message(line.spec.timing.heartbeat_s)
    return False


def fail_on_loss(line: WorkerContext, assembly: ElasticTraining, exc: LossNotFinite) -> None:
    """The loss is not finite, and all members know it: the first tells the master."""
    seat = line.rounds.current
    if seat is None or seat.rank == 0:
        line.master.report_failure(str(exc), wrong_job=False, permanent=True)
    _save_on_request(line, assembly)


def fail_job(line: WorkerContext, assembly: ElasticTraining, exc: ElasticDLError) -> None:
    """The job cannot go on, for a reason that the state has nothing to do with. Where this worker holds it, it stays.

    Otherwise raises `exc`.
    """
    if not assembly.engine.has_whole_state:
        raise exc
    is_unavailable = isinstance(exc, DataUnavailable)  # as a database that was waited for in vain: no wrong job
    line.master.report_failure(str(exc), wrong_job=is_job_error(exc) and not is_unavailable, permanent=True)
    _save_on_request(line, assembly)


def save_before_crash(line: WorkerContext, assembly: ElasticTraining, exc: BaseException) -> None:
    """The user's code fails and the worker with it. The first member keeps the state: all may fail alike.

    If others are well, they go on with the state they hold.
    """
    seat = line.rounds.current
    if not assembly.engine.has_whole_state or (seat is not None and seat.rank != 0):
        return
    line.master.report_failure(f"{type(exc).__name__}: {exc}", wrong_job=False, permanent=False)
    try:
        assembly.saver.save_and_wait()
    except ElasticDLError as problem:
        _log.warning("the state of step %d is not kept: %s", assembly.engine.training.step, problem)


def _save_on_request(line: WorkerContext, assembly: ElasticTraining) -> None:
    """Until this worker is released. Somebody will be asked to write the state; perhaps this one."""
    link = line.master
    while not link.is_released and not link.is_orphaned:
        if link.next_export() is not None:
            assembly.saver.save_and_wait()
            link.report_exported("")
        else:
            link.wait_for_message(line.spec.timing.heartbeat_s)
    if link.is_orphaned:
        assembly.saver.save_and_wait()
