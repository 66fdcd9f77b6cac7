"""Traces of Tiresias's artifact: job_id,num_gpu,submit_time,iterations,model_name,duration,interval."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elasticdl.sim import plain, rows
from elasticdl.sim.plain import Scaling
from elasticdl.sim.trace import TraceJob, in_order

COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")


def read(path: Path, scaling: Scaling) -> Iterator[TraceJob]:
    """As they stand there, which must be in order of time."""
    return in_order(path, _lines(path, scaling))


def _lines(path: Path, scaling: Scaling) -> Iterator[tuple[int, TraceJob]]:
    for row in rows.read(path, COLUMNS):
        name, model, size = f"job-{row.text('job_id')}", row.text("model_name"), row.count("num_gpu")
        row.count("iterations")
        yield (
            row.line,
            plain.job(name, row.number("submit_time"), model, size, row.number("duration", is_open=True), scaling),
        )
