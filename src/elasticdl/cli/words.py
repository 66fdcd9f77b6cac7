"""Numbers and times in words a person reads at a glance."""

from __future__ import annotations

from datetime import datetime

from elasticdl.rpc import elasticdl_pb2 as pb

ENDED = frozenset({"left", "lost"})  # states of a worker from which it does not come back
OVER = frozenset({"stopped", "succeeded", "failed"})  # phases of a job that is over


def duration(seconds: float) -> str:
    """3.2 s, 1:05, 2:03:04."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def cost(seconds: float) -> str:
    """What an event cost: 0 ms of nothing is not worth a word."""
    if seconds <= 0:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def count(number: float) -> str:
    """12,345 and 0.7."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def clock(at: float) -> str:
    """The local time of day of an instant."""
    return f"{datetime.fromtimestamp(at):%H:%M:%S}"


def remaining_s(status: pb.JobStatus) -> float | None:
    """Seconds to the end at the present speed; None where nobody can say."""
    left = status.total_records - status.records
    if status.records_per_s <= 0 or status.total_records <= 0 or status.phase != "running":
        return None
    return max(left, 0) / status.records_per_s


def resumption(name: str, kind: str) -> str:
    """The command that goes on with a job."""
    return f"elasticdl {'run' if kind == 'script' else 'train'} --resume --job_name={name}"


def living(status: pb.JobStatus) -> list[pb.WorkerStatus]:
    return [worker for worker in status.workers if worker.state not in ENDED]


def metrics(status: pb.JobStatus) -> str:
    """accuracy 0.9510, loss 0.1532"""
    return ", ".join(f"{name} {value:.4f}" for name, value in sorted(status.metrics.items()))


def bounds(status: pb.JobStatus) -> str:
    if status.min_workers == status.max_workers:
        return f"{status.wished_workers} wished"
    return f"{status.wished_workers} wished, {status.min_workers} to {status.max_workers} possible"
