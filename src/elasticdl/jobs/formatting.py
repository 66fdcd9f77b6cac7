"""Numbers, times and facts of a job as short texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from elasticdl.jobs.job_status import JobStatus, ReplicaStatus
from elasticdl.model.reduction import BAD_ROWS
from elasticdl.spec import JobKind, Phase


def has_record_count(status: JobStatus) -> bool:
    """Whether the master counts the records that the job trains; for an unmodified script it does not."""
    return status.kind is JobKind.TRAINING or (status.kind is JobKind.SCRIPT and bool(status.total_records))


def format_duration(seconds: float) -> str:
    """Formats a duration as 3.2 s, 1:05 or 2:03:04."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes, remaining = divmod(total, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{remaining:02}" if hours else f"{minutes}:{remaining:02}"


def format_cost(seconds: float) -> str:
    """The cost of an event; "" if it cost nothing."""
    if seconds <= 0:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def format_count(number: float) -> str:
    """Formats a number as 12,345 or 0.7."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def format_time(at: float) -> str:
    """The local time of day of an instant."""
    return f"{datetime.fromtimestamp(at):%H:%M:%S}"


def remaining_s(status: JobStatus) -> float | None:
    """Seconds to the end at the present speed; None if it is not known."""
    if status.records_per_s <= 0 or not status.total_records or status.phase is not Phase.RUNNING:
        return None
    return max(status.total_records - status.records, 0) / status.records_per_s


def resume_command(name: str, kind: str) -> str:
    """The command that resumes a job."""
    return f"elasticdl {'run' if kind == 'script' else 'train'} --resume --job_name={name}"


def format_bytes(count: float) -> str:
    """Formats a size as 312 B, 1.5 KiB or 4.0 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError("GiB has no upper bound")


def format_staleness(histogram: Sequence[int]) -> str:
    """The most common staleness of pushes in words: 0, 1, 2-3, 4-7 …; "" where there was no push."""
    if not any(histogram):
        return ""
    bucket = max(range(len(histogram)), key=lambda index: histogram[index])
    return str(bucket) if bucket < 2 else f"{1 << bucket - 1}-{(1 << bucket) - 1}"


def count_living(replicas: Iterable[ReplicaStatus]) -> int:
    """Counts those that did not leave and were not lost, also in a job that is over."""
    return sum(replica.is_alive for replica in replicas)


def format_metrics(status: JobStatus) -> str:
    """accuracy 0.9510, loss 0.1532; of a prediction job: 2 bad rows"""
    if status.kind is JobKind.PREDICTION:
        bad = int(status.metrics.get(BAD_ROWS, 0))
        return f"{bad:,} bad {'row' if bad == 1 else 'rows'}"
    return ", ".join(f"{name} {value:.4f}" for name, value in sorted(status.metrics.items()))


def format_worker_bounds(status: JobStatus) -> str:
    if status.min_workers == status.max_workers:
        return f"{status.desired_workers} desired"
    return f"{status.desired_workers} desired, {status.min_workers} to {status.max_workers} allowed"
