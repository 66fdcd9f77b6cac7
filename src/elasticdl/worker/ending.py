"""The end of a worker's training: the last checkpoint, the export, and waiting to be released."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.errors import DataUnavailable, LossNotFinite
from elasticdl.worker.assembly import Assembly, Line


def finish(line: Line, assembly: Assembly, export: Callable[[str], None]) -> str:
    """What is left to do after the last step of this worker; returns the word of farewell.

    Whoever the master asks writes the last checkpoint and the model; all wait until that is done,
    since each of them could be asked.
    """
    engine, link = assembly.engine, line.link
    if engine.has_left:
        seat = line.rounds.seat
        if link.is_orphaned and engine.training.holds_state:
            return _orphaned(line, assembly)
        if link.is_overdue and seat is not None and seat.group.size == 1:
            assembly.saver.finish()
        return "left at the next round" if link.is_leaving else "released"
    training = engine.training
    link.finished(training.step, training.records, engine.stopped, training.batch.progress)
    while not link.is_released:
        asked = link.next_export()
        if asked is None:
            if link.is_orphaned:
                return _orphaned(line, assembly)
            link.wait_end(line.spec.timing.heartbeat_s)
            continue
        while link.evaluations:
            training.evaluated(*link.evaluations.popleft())
        assembly.saver.finish()
        if asked.path:
            export(asked.path)
        link.exported(asked.path)
    return engine.stopped or "all steps are done"


def _orphaned(line: Line, assembly: Assembly) -> str:
    seat = line.rounds.seat
    if seat is None or seat.rank == 0:
        assembly.saver.finish()
    return f"the master has been away for more than {line.spec.timing.orphan_s:g} s; the last checkpoint is written"


def give_up(line: Line, assembly: Assembly, exc: LossNotFinite) -> None:
    """The loss is not finite, and all members know it: the first keeps the state and tells the master."""
    seat = line.rounds.seat
    if seat is None or seat.rank == 0:
        assembly.saver.finish()
        kept = "the state before this step is in the newest checkpoint"
        line.link.failure(f"{exc}; {kept}", wrong_job=False, permanent=True)
    while not line.link.is_released and not line.link.is_orphaned:
        line.link.wait_end(line.spec.timing.heartbeat_s)


def keep_state(line: Line, assembly: Assembly, exc: DataUnavailable) -> None:
    """The data cannot be read any more: whoever finds out first keeps the state before this step and ends the job."""
    kept = ""
    if assembly.engine.training.holds_state:
        assembly.saver.finish()
        kept = "; the state before this step is in the newest checkpoint"
    line.link.failure(f"{exc}{kept}", wrong_job=False, permanent=bool(kept))
    while kept and not line.link.is_released and not line.link.is_orphaned:
        line.link.wait_end(line.spec.timing.heartbeat_s)
