"""Incidents that workers handle themselves and report for the event log and the metrics. Pure."""

from __future__ import annotations

from elasticdl.data.bad_records import describe_excess
from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.ending import fail_job
from elasticdl.master.machine.events import BadRecordFound, NoticeReported
from elasticdl.master.machine.state import MasterState

CHECKPOINT_FAILED = "checkpoint-failed"  # a checkpoint could not be written; training goes on
DATA_WAITS = "data-waits"  # data cannot be read at the moment; reading is tried again
DATA_RETURNED = "data-returned"
STEP_RETRIED = "step-retried"  # a user's function raised an exception once

BAD_RECORD = "bad-record"

NOTICE_KINDS = (CHECKPOINT_FAILED, DATA_WAITS, DATA_RETURNED, STEP_RETRIED)


def on_notice_reported(job: MasterState, event: NoticeReported, now: float) -> list[Action]:
    if event.kind not in NOTICE_KINDS:  # from a newer version of the worker
        return []
    if event.kind == CHECKPOINT_FAILED and job.ledger.checkpoint_writer == event.worker:
        job.ledger.checkpoint_writer = None  # the next one is requested as if this one had been written
    job.ledger.notices[event.kind] = job.ledger.notices.get(event.kind, 0) + 1
    return [job.add_log_entry(now, event.kind, replica=event.worker, reason=event.reason, step=event.step)]


def on_bad_record_found(job: MasterState, event: BadRecordFound, now: float) -> list[Action]:
    """Count a bad record once, however many workers report it. The job fails when there are more than its limit."""
    key, skipped, limit = f"{event.source}, record {event.record}", job.ledger.bad_records, job.spec.data.bad_records
    if key in skipped:
        return []
    skipped[key] = event.reason
    actions: list[Action] = [
        job.add_log_entry(now, BAD_RECORD, replica=event.worker, reason=f"{key} is skipped: {event.reason}")
    ]
    if len(skipped) > limit:
        actions += fail_job(job, describe_excess(len(skipped), limit, event.reason), 1, now)
    return actions
