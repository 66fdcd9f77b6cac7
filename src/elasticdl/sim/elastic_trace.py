"""A trace of your own: name,submitted_s,duration_s,workers,minimum,maximum; if you like priority, queue, devices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elasticdl.sim import rows
from elasticdl.sim.plain import Plain, Scaling
from elasticdl.sim.trace import TraceJob, in_order

COLUMNS = ("name", "submitted_s", "duration_s", "workers", "minimum", "maximum")


def read(path: Path, scaling: Scaling) -> Iterator[TraceJob]:
    """In order of time. A duration is with `workers`; more of them, up to `maximum`, are worth `efficiency` each."""
    return in_order(path, _lines(path, scaling))


def _lines(path: Path, scaling: Scaling) -> Iterator[tuple[int, TraceJob]]:
    for row in rows.read(path, COLUMNS):
        least, most, size = row.count("minimum"), row.count("maximum"), row.count("workers")
        if not least <= size <= most:
            values = f"minimum {least}, workers {size}, maximum {most}"
            raise row.wrong("workers", "minimum ≤ workers ≤ maximum", values)
        stretch = Scaling(scaling.efficiency, most / size)
        yield (
            row.line,
            TraceJob(
                row.text("name"),
                row.number("submitted_s"),
                Plain(row.values.get("queue") or "job", size, row.number("duration_s", is_open=True), stretch),
                size,
                least,
                most,
                priority=int(row.number("priority", least=-1e9)) if row.values.get("priority") else 0,
                queue=row.values.get("queue", ""),
                devices=row.count("devices") if row.values.get("devices") else 1,
            ),
        )
