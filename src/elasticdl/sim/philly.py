"""Philly's trace as Pollux's artifact has it: timestamp,duration,num_gpus,gpu_time,cluster. Not sorted by time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from elasticdl.errors import DataError
from elasticdl.sim import plain, rows
from elasticdl.sim.plain import Scaling
from elasticdl.sim.trace import TraceJob

COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")


def read(path: Path, scaling: Scaling, cluster: str = "") -> Iterator[TraceJob]:
    """In order of time, in seconds from the first; of one cluster, "": of all.

    Three numbers of each line are kept for sorting, nothing else.
    """
    times, durations, sizes = array("d"), array("d"), array("l")
    clusters = set()
    for row in rows.read(path, COLUMNS):
        at, duration, size = _time(row), row.number("duration", is_open=True), row.count("num_gpus")
        clusters.add(row.values["cluster"])
        if cluster in ("", row.values["cluster"]):
            times.append(at)
            durations.append(duration)
            sizes.append(size)
    if not times:
        raise DataError(
            f"{path}: expected jobs{' of cluster ' + cluster if cluster else ''}, found none; "
            f"clusters are {', '.join(sorted(clusters)) or 'none'}"
        )
    order = sorted(range(len(times)), key=times.__getitem__)
    first = times[order[0]]
    for place, index in enumerate(order):
        size = sizes[index]
        yield plain.job(f"philly-{place:05}", times[index] - first, f"{size}-gpu", size, durations[index], scaling)


def _time(row: rows.Row) -> float:
    try:
        return datetime.fromisoformat(row.values["timestamp"]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise row.wrong("timestamp", "YYYY-MM-DD HH:MM:SS", row.values["timestamp"]) from None
