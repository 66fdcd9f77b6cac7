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
from elasticdl.worker.assembly import ElasticTraining
from elasticdl.worker.context import WorkerContext

_WRITER_TURN_S = 5.0  # how long each member waits for the member before it to write

_log = logging.getLogger(__name__)


def finish_training(context: WorkerContext, assembly: ElasticTraining, export: Callable[[str], None]) -> str:
    """Finish after the last step of this worker; returns the exit reason.

    The worker that the master asks writes the last checkpoint and the model. All wait until that is done, because each
    of them could be asked.
    """
    engine, master = assembly.engine, context.master
    if engine.has_left:
        return _finish_early(context, assembly)
    training = engine.training
    master.report_finished(training.step, training.records, engine.stop_reason, training.batch.progress)
    while not master.is_released:
        request = master.next_export()
        if request is None:
            if master.is_orphaned:
                return _finish_without_master(context, assembly)
            master.wait_for_message(context.spec.timing.heartbeat_interval_s)
            continue
        while master.evaluation_results:
            training.notify_evaluation(*master.evaluation_results.popleft())
        assembly.saver.save_and_wait()
        if request.path:
            export(request.path)
        master.report_exported(request.path)
    return engine.stop_reason or "all steps are done"


def _finish_early(context: WorkerContext, assembly: ElasticTraining) -> str:
    """Finish after this worker has left a job that goes on, has failed, or has lost its master."""
    engine, master, entered_round = assembly.engine, context.master, context.rounds.current
    if master.must_save_state and engine.training.has_state:
        _save_on_request(context, assembly)
        return "the job has failed; its state is kept"
    if (master.is_orphaned or engine.is_orphaned) and engine.training.has_state:
        return _finish_without_master(context, assembly)
    if master.is_overdue and entered_round is not None and entered_round.group.size == 1:
        assembly.saver.save_and_wait()
    return "left at the next round" if master.is_leaving else "released"


def _finish_without_master(context: WorkerContext, assembly: ElasticTraining) -> str:
    """At least one member has no master any more: the first member writes the state, the others check that it did.

    A master that comes back finds that the members have left, and starts other workers from this state.
    """
    entered_round = context.rounds.current
    if entered_round is None or not _is_saved_by_another(context, assembly, entered_round.rank * _WRITER_TURN_S):
        assembly.saver.save_and_wait()
    return "the master is gone for good; the last checkpoint is written"


def _is_saved_by_another(context: WorkerContext, assembly: ElasticTraining, wait_s: float) -> bool:
    """Whether another member has written this state, every byte of it, within `wait_s` seconds."""
    directory, deadline = context.master.directory.checkpoints(context.spec), time.monotonic() + wait_s
    while time.monotonic() < deadline:
        with suppress(CheckpointCorrupt, TransientError):
            newest = manifest.find_newest(directory)
            if newest is not None and (manifest.parse_step(newest) or 0) >= assembly.engine.training.step:
                return True
        context.master.wait_for_message(context.spec.timing.heartbeat_interval_s)
    return False


def fail_on_loss(context: WorkerContext, assembly: ElasticTraining, exc: LossNotFinite) -> None:
    """The loss is not finite, and all members know it: the first one tells the master."""
    entered_round = context.rounds.current
    if entered_round is None or entered_round.rank == 0:
        context.master.report_failure(str(exc), wrong_job=False, permanent=True)
    _save_on_request(context, assembly)


def fail_job(context: WorkerContext, assembly: ElasticTraining, exc: ElasticDLError) -> None:
    """Fail the job for a reason that has nothing to do with its state, and save the state.

    Raises `exc` if this worker holds no whole state.
    """
    if not assembly.engine.has_whole_state:
        raise exc
    is_unavailable = isinstance(exc, DataUnavailable)  # for example a database that did not come back: no wrong job
    context.master.report_failure(str(exc), wrong_job=is_job_error(exc) and not is_unavailable, permanent=True)
    _save_on_request(context, assembly)


def save_before_crash(context: WorkerContext, assembly: ElasticTraining, exc: BaseException) -> None:
    """The user's code fails, and the worker with it. The first member saves the state: all may fail alike.

    Other members that do not fail go on with the state that they hold.
    """
    entered_round = context.rounds.current
    if not assembly.engine.has_whole_state or (entered_round is not None and entered_round.rank != 0):
        return
    context.master.report_failure(f"{type(exc).__name__}: {exc}", wrong_job=False, permanent=False)
    try:
        assembly.saver.save_and_wait()
    except ElasticDLError as problem:
        _log.warning("the state of step %d is not kept: %s", assembly.engine.training.step, problem)


def _save_on_request(context: WorkerContext, assembly: ElasticTraining) -> None:
    """Wait until this worker is released; write the state if the master asks this worker to."""
    master = context.master
    while not master.is_released and not master.is_orphaned:
        if master.next_export() is not None:
            assembly.saver.save_and_wait()
            master.report_exported("")
        else:
            master.wait_for_message(context.spec.timing.heartbeat_interval_s)
    if master.is_orphaned:
        assembly.saver.save_and_wait()
