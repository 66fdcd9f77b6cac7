"""Reads CSV traces: your own, Philly's and Tiresias's; errors name file, line and column."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from elasticdl.errors import DataError
from elasticdl.sim.traces import recorded
from elasticdl.sim.traces.recorded import RecordedWorkload, ScalingAssumption
from elasticdl.sim.traces.trace import TraceJob, check_order

MAX_COUNT = 10**9  # devices, workers, records: more than in any trace, and small enough for any array


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row of a file, by column."""

    path: Path
    line: int
    values: dict[str, str]

    def text(self, column: str) -> str:
        if not (value := self.values[column].strip()):
            raise self.error(column, "something", value)
        return value

    def count(self, column: str) -> int:
        """Returns a whole number from 1 to `MAX_COUNT`."""
        try:
            number = int(self.values[column])
        except ValueError:
            number = 0
        if not 1 <= number <= MAX_COUNT:
            raise self.error(column, f"a whole number from 1 to {MAX_COUNT:,}", self.values[column])
        return number

    def number(self, column: str, *, least: float = 0.0, is_open: bool = False) -> float:
        """Returns a finite number of at least `least`, above it with `is_open`."""
        try:
            number = float(self.values[column])
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < least or (is_open and number == least):
            expected = f"a number {'above' if is_open else 'of at least'} {least:g}"
            raise self.error(column, expected, self.values[column])
        return number

    def error(self, column: str, expected: str, received: str) -> DataError:
        return DataError(f"{self.path}:{self.line}: {column}: expected {expected}, received {received!r}")


def read_rows(path: Path, columns: tuple[str, ...]) -> Iterator[CsvRow]:
    """Yields all rows but empty ones. The header must contain these columns, in any order."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            if missing := [name for name in columns if name not in header]:
                raise DataError(
                    f"{path}:1: expected the columns {','.join(columns)}, received {','.join(header) or 'nothing'}: "
                    f"{', '.join(missing)} missing"
                )
            for fields in reader:
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise DataError(
                        f"{path}:{reader.line_num}: expected {len(header)} values ({','.join(header)}), "
                        f"received {len(fields)}: {','.join(fields)!r}"
                    )
                yield CsvRow(path, reader.line_num, dict(zip(header, fields, strict=True)))
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise DataError(f"{path}: expected a CSV file: {exc}") from exc


ELASTIC_COLUMNS = ("name", "submitted_s", "duration_s", "workers", "minimum", "maximum")


def read_elastic_trace(path: Path, scaling: ScalingAssumption) -> Iterator[TraceJob]:
    """Reads your own trace: name,submitted_s,duration_s,workers,minimum,maximum; optional priority, queue, devices.

    Rows are in order of time. A duration is that with `workers`; each further one, up to `maximum`, adds `efficiency`.
    """
    return check_order(path, _parse_elastic_jobs(path, scaling))


def _parse_elastic_jobs(path: Path, scaling: ScalingAssumption) -> Iterator[tuple[int, TraceJob]]:
    for row in read_rows(path, ELASTIC_COLUMNS):
        min_workers, max_workers, size = row.count("minimum"), row.count("maximum"), row.count("workers")
        if not min_workers <= size <= max_workers:
            values = f"minimum {min_workers}, workers {size}, maximum {max_workers}"
            raise row.error("workers", "minimum ≤ workers ≤ maximum", values)
        assumption = ScalingAssumption(scaling.efficiency, max_workers / size)
        yield (
            row.line,
            TraceJob(
                row.text("name"),
                row.number("submitted_s"),
                RecordedWorkload(
                    row.values.get("queue") or "job", size, row.number("duration_s", is_open=True), assumption
                ),
                size,
                min_workers,
                max_workers,
                priority=int(row.number("priority", least=-1e9)) if row.values.get("priority") else 0,
                queue=row.values.get("queue", ""),
                devices=row.count("devices") if row.values.get("devices") else 1,
            ),
        )


PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")


def read_philly_trace(path: Path, scaling: ScalingAssumption, cluster: str = "") -> Iterator[TraceJob]:
    """Reads Philly's trace from Pollux's artifact: timestamp,duration,num_gpus,gpu_time,cluster, in any order.

    Jobs are in order of time, in seconds since the first; of one cluster, or of all for "". Only three numbers of
    each row are kept for sorting.
    """
    times, durations, sizes = array("d"), array("d"), array("l")
    clusters = set()
    for row in read_rows(path, PHILLY_COLUMNS):
        submitted_at, duration, size = (
            _parse_philly_time(row),
            row.number("duration", is_open=True),
            row.count("num_gpus"),
        )
        clusters.add(row.values["cluster"])
        if cluster in ("", row.values["cluster"]):
            times.append(submitted_at)
            durations.append(duration)
            sizes.append(size)
    if not times:
        raise DataError(
            f"{path}: expected jobs{' of cluster ' + cluster if cluster else ''}, found none; "
            f"clusters are {', '.join(sorted(clusters)) or 'none'}"
        )
    order = sorted(range(len(times)), key=times.__getitem__)
    first = times[order[0]]
    for number, index in enumerate(order):
        size = sizes[index]
        yield recorded.recorded_job(
            f"philly-{number:05}", times[index] - first, f"{size}-gpu", size, durations[index], scaling
        )


def _parse_philly_time(row: CsvRow) -> float:
    try:
        return datetime.fromisoformat(row.values["timestamp"]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise row.error("timestamp", "YYYY-MM-DD HH:MM:SS", row.values["timestamp"]) from None


TIRESIAS_COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")


def read_tiresias_trace(path: Path, scaling: ScalingAssumption) -> Iterator[TraceJob]:
    """Reads Tiresias's traces: job_id,num_gpu,submit_time,iterations,model_name,duration,interval, in order of time."""
    return check_order(path, _parse_tiresias_jobs(path, scaling))


def _parse_tiresias_jobs(path: Path, scaling: ScalingAssumption) -> Iterator[tuple[int, TraceJob]]:
    for row in read_rows(path, TIRESIAS_COLUMNS):
        name, model, size = f"job-{row.text('job_id')}", row.text("model_name"), row.count("num_gpu")
        row.count("iterations")
        yield (
            row.line,
            recorded.recorded_job(
                name, row.number("submit_time"), model, size, row.number("duration", is_open=True), scaling
            ),
        )
