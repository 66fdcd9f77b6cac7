"""The checkpoint that a job resumes from. The status shows it until a worker has loaded it. Pure."""

from __future__ import annotations

from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.events import JobResumed
from elasticdl.master.machine.state import MasterState
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobKind, JobSpec


def on_job_resumed(job: MasterState, event: JobResumed, now: float) -> list[Action]:
    job.ledger.resumed_from = event
    return [job.add_log_entry(now, "resumed", reason=_describe_resume(job.spec, event), step=event.step)]


def complete_status(job: MasterState, status: pb.JobStatus) -> None:
    """Complete the status of a job from its checkpoint until a worker has loaded it."""
    event = job.ledger.resumed_from
    if event is None or status.step > 0:
        return
    status.step = event.step
    status.records = max(status.records, event.records)
    status.checkpoint_step, status.checkpoint_path = event.step, event.path
    if not event.records_per_epoch:
        return
    status.records_per_epoch = status.records_per_epoch or event.records_per_epoch
    status.epoch = event.records // event.records_per_epoch
    if epochs := _planned_epochs(job.spec):
        status.epoch = min(status.epoch, epochs)
        status.total_records = status.total_records or epochs * event.records_per_epoch


def _describe_resume(spec: JobSpec, event: JobResumed) -> str:
    """from step 34 of job mnist, 340 of 410 records, epoch 2 of 2"""
    parts = [f"from step {event.step:,}" + (f" of job {event.job}" if event.job not in ("", spec.name) else "")]
    epochs = _planned_epochs(spec) if event.records_per_epoch else 0
    total = f" of {epochs * event.records_per_epoch:,}" if epochs else ""
    parts.append(f"{event.records:,}{total} records")
    if epochs:
        parts.append(f"epoch {min(event.records // event.records_per_epoch + 1, epochs)} of {epochs}")
    return ", ".join(parts)


def _planned_epochs(spec: JobSpec) -> int:
    """How many epochs will be trained; 0: not known before a worker reports it."""
    return spec.plan.epochs if spec.kind is JobKind.TRAINING and not spec.plan.max_steps else 0
