"""Workloads of Pollux's artifact: jobs of measured applications, 160 in the busiest eight hours of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from elasticdl.errors import DataError
from elasticdl.sim import application, rows
from elasticdl.sim.application import Application
from elasticdl.sim.profiled import Profiled
from elasticdl.sim.trace import TraceJob, in_order

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
MOST_WORKERS = 64  # that were measured
PINNED = {"ncf": 32768}  # runs on one device, with this batch
_EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
_LOCAL_MAXIMUM = {"yolov3": 8}


def applications(directory: Path) -> Mapping[str, Application]:
    """All that are measured below `directory`, by name."""
    found = sorted(path.parent for path in directory.glob("*/placements.csv"))
    if not found:
        raise DataError(f"{directory}: expected directories with placements.csv, one an application; found none")
    return {
        path.name: application.load(path, _EPOCHS.get(path.name, 0), _LOCAL_MAXIMUM.get(path.name, 0)) for path in found
    }


def read(path: Path, known: Mapping[str, Application], *, adapts_batch: bool, needs_oracle: bool) -> Iterator[TraceJob]:
    """Jobs of workload-N.csv: name, time, application, num_replicas, batch_size; in order of time."""
    return in_order(path, _lines(path, known, adapts_batch, needs_oracle))


def _lines(
    path: Path, known: Mapping[str, Application], adapts_batch: bool, needs_oracle: bool
) -> Iterator[tuple[int, TraceJob]]:
    for row in rows.read(path, COLUMNS):
        name, at, kind = row.text("name"), row.number("time"), row.text("application")
        workers, batch = row.count("num_replicas"), row.count("batch_size")
        if kind not in known:
            raise row.wrong("application", f"one that was measured ({', '.join(known)})", kind)
        pinned = PINNED.get(kind)
        fixed = pinned if adapts_batch else batch
        app = known[kind]
        most = 1 if pinned else max(1, (fixed or app.limits.maximum) // app.limits.local_minimum)
        body = Profiled(app, fixed, is_oracle=needs_oracle)
        yield row.line, TraceJob(name, at, body, workers, 1, min(most, MOST_WORKERS))
