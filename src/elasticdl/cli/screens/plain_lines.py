"""A job without a terminal: one line of progress now and then, one line for each event."""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.jobs import formatting
from elasticdl.jobs.job_status import JobEvent, JobStatus
from elasticdl.spec import JobKind


def progress_line(status: JobStatus) -> str:
    """12:30:01 digits running: 640 of 1,797 records, epoch 1 of 3, step 10 of 85, loss 0.5000, …"""
    parts = []
    if formatting.has_record_count(status):
        total = f" of {status.total_records:,}" if status.total_records else ""
        parts.append(f"{status.records:,}{total} records")
        if status.epochs:
            parts.append(f"epoch {min(status.epoch + 1, status.epochs)} of {status.epochs}")
        steps = f" of {status.total_steps:,}" if status.total_steps else ""
        parts.append(f"step {status.step:,}{steps}")
    elif status.shards:
        parts.append(f"{status.shards_done} of {status.shards} shards")
    if status.loss is not None:
        parts.append(f"loss {status.loss:.4f}")
    if status.metrics:
        step = "" if status.kind is JobKind.PREDICTION else f" at step {status.metrics_step:,}"
        parts.append(formatting.format_metrics(status) + step)
    if status.records_per_s > 0:
        parts.append(f"{formatting.format_count(status.records_per_s)} records/s")
    living = formatting.count_living(status.workers)
    parts.append(f"{living} worker{'s' * (living != 1)}")
    if status.desired_ps:
        parts.append(f"{formatting.count_living(status.ps)} ps")
    left_s = formatting.remaining_s(status)
    if left_s is not None:
        parts.append(f"{formatting.format_duration(left_s)} to go")
    return f"{formatting.format_time(status.updated_at)} {status.name} {status.phase}: {', '.join(parts)}"


def event_line(event: JobEvent) -> str:
    """12:30:01 worker-1 lost: killed by signal 9 (step 12, cost 180 ms)"""
    about = [f"step {event.step:,}"] if event.step > 0 else []
    if event.cost_s > 0:
        about.append(f"cost {formatting.format_cost(event.cost_s)}")
    happening = event.kind.removeprefix("worker-").removeprefix("ps-")
    subject = f"{event.replica} {happening}" if event.replica else happening
    reason = f": {event.reason}" if event.reason else ""
    return f"{formatting.format_time(event.at)} {subject}{reason}" + (f" ({', '.join(about)})" if about else "")


class LineSchedule:
    """Which lines are due: every event once, progress every `every_s` seconds."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._next_at = 0.0
        self._seen: set[tuple[float, str, str | None, int]] = set()

    def due_lines(self, status: JobStatus, now: float) -> Iterator[str]:
        for event in status.events:
            key = (event.at, event.kind, event.replica, event.step)
            if key not in self._seen:
                self._seen.add(key)
                yield event_line(event)
        if now >= self._next_at or status.is_over:
            self._next_at = now + self._every_s
            yield progress_line(status)
