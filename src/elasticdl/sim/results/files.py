"""Writes results as JSON, with the command that made them, and as Parquet with one row per job."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import elasticdl
from elasticdl import atomic
from elasticdl.sim.interface import JobRecord
from elasticdl.sim.results.outcome import SimulationOutcome

JOB_COLUMNS = (
    "name",
    "application",
    "submitted_at",
    "requested",
    "priority",
    "started_at",
    "finished_at",
    "jct_s",
    "waited_s",
    "attained_s",
    "restarts",
    "fairness",
    "reason",
)


def results_document(outcomes: Sequence[SimulationOutcome], command: str, about: dict[str, Any]) -> dict[str, Any]:
    """Only `timing` differs between two runs of the same command."""
    return {
        "command": command,
        "version": elasticdl.__version__,
        **about,
        "policies": [
            {
                "policy": outcome.policy,
                "is_complete": outcome.stopped_at is None,
                "unfinished": outcome.unfinished,
                "metrics": {key: _finite_or_none(value) for key, value in asdict(outcome.metrics).items()},
                "rejected_plans": outcome.rejected_plans,
                "policy_error": outcome.policy_error,
                "timing": asdict(outcome.timing),
                "devices_in_use": [list(point) for point in outcome.device_usage],
                "jobs": [_job_row(record) for record in (*outcome.finished_jobs, *outcome.never_started_jobs)],
            }
            for outcome in outcomes
        ],
    }


def write_json(path: Path, document: dict[str, Any]) -> None:
    atomic.write_file(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def write_parquet(path: Path, outcomes: Sequence[SimulationOutcome], command: str) -> None:
    """Writes one row per job; the command is in the file's metadata."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [
        {"policy": outcome.policy, **_job_row(job)}
        for outcome in outcomes
        for job in (*outcome.finished_jobs, *outcome.never_started_jobs)
    ]
    text_types = {"policy": pa.string(), "name": pa.string(), "application": pa.string(), "reason": pa.string()}
    integers = {"requested", "priority", "restarts"}
    columns = [
        pa.field(name, text_types.get(name, pa.int64() if name in integers else pa.float64()))
        for name in ("policy", *JOB_COLUMNS)
    ]
    schema = pa.schema(columns, metadata={"command": command, "elasticdl": elasticdl.__version__})
    with atomic.open_file(path) as file:
        parquet.write_table(pa.Table.from_pylist(rows, schema=schema), file)


def _job_row(record: JobRecord) -> dict[str, Any]:
    return {name: _finite_or_none(getattr(record, name)) for name in JOB_COLUMNS}


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
