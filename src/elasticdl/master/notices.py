"""What workers deal with themselves, and tell for the event log and the metrics. Pure."""

from __future__ import annotations

from elasticdl.data.skipping import describe_excess
from elasticdl.master.actions import Action
from elasticdl.master.ending import fail
from elasticdl.master.events import BadRecordFound, WorkerNoticed
from elasticdl.master.job import Job

CHECKPOINT_FAILED = "checkpoint-failed"  # a checkpoint could not be written; training goes on
DATA_WAITS = "data-waits"  # data that cannot be read at the moment is tried again
DATA_RETURNED = "data-returned"
STEP_RETRIED = "step-retried"  # a user's function failed once

BAD_RECORD = "bad-record"

KINDS = (CHECKPOINT_FAILED, DATA_WAITS, DATA_RETURNED, STEP_RETRIED)


def noticed(job: Job, event: WorkerNoticed, now: float) -> list[Action]:
    if event.kind not in KINDS:  # of a newer worker
        return []
    if event.kind == CHECKPOINT_FAILED and job.ledger.saver == event.worker:
        job.ledger.saver = None  # the next one is asked for as if it had been written
    job.ledger.notices[event.kind] = job.ledger.notices.get(event.kind, 0) + 1
    return [job.note(now, event.kind, worker=event.worker, reason=event.reason, step=event.step)]


def bad_record_found(job: Job, event: BadRecordFound, now: float) -> list[Action]:
    """Counted once, whoever met it and however often; the job fails past its limit."""
    key, known, limit = f"{event.source}, record {event.record}", job.ledger.bad_records, job.spec.data.bad_records
    if key in known:
        return []
    known[key] = event.why
    actions: list[Action] = [job.note(now, BAD_RECORD, worker=event.worker, reason=f"{key} is skipped: {event.why}")]
    if len(known) > limit:
        actions += fail(job, describe_excess(len(known), limit, event.why), 1, now)
    return actions
