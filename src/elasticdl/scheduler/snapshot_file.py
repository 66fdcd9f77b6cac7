"""Stores a snapshot as a JSON document, with rate models as tables of sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from elasticdl import atomic
from elasticdl.errors import DataError, SpecError
from elasticdl.scheduler.models.rate_table import RateTable
from elasticdl.scheduler.snapshot import (
    GradientNoise,
    JobInfo,
    NodeInfo,
    PlacementConstraint,
    Snapshot,
    SpeedSample,
    UtilityFunction,
)

VERSION = 1
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SnapshotWithUnits:
    """A snapshot, and what its devices are: `unit` of the Kubernetes resource `resource` each."""

    snapshot: Snapshot
    resource: str = ""  # such as nvidia.com/gpu; "": threads of this machine
    unit: float = 1.0


def write_snapshot(path: Path, snapshot: SnapshotWithUnits) -> None:
    try:
        atomic.write_file(path, json.dumps(to_document(snapshot), indent=1) + "\n")
    except OSError as exc:
        raise SpecError(f"{path}: the snapshot cannot be written: {exc}") from exc


def read_snapshot(path: Path) -> SnapshotWithUnits:
    try:
        document = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as exc:
        raise DataError(f"{path}: expected a snapshot in JSON: {exc}") from exc
    return from_document(document, str(path))


def to_document(snapshot_with_units: SnapshotWithUnits) -> Document:
    snapshot = snapshot_with_units.snapshot
    devices_per_node: dict[str, int] = {}
    for node in snapshot.nodes:
        devices_per_node[node.kind] = max(devices_per_node.get(node.kind, 0), node.devices)
    return {
        "version": VERSION,
        "now": snapshot.now,
        "is_shared": snapshot.is_shared,
        "resource": snapshot_with_units.resource,
        "unit": snapshot_with_units.unit,
        "nodes": [asdict(node) for node in snapshot.nodes],
        "jobs": [_job_document(job, snapshot, devices_per_node) for job in snapshot.jobs],
    }


def from_document(document: Any, source: str) -> SnapshotWithUnits:
    """Raises DataError that names what is wrong, and in which job or node."""
    if not isinstance(document, dict) or document.get("version") != VERSION:
        received = document.get("version") if isinstance(document, dict) else type(document).__name__
        raise DataError(f"{source}: expected a snapshot of version {VERSION}, received {received!r}")
    try:
        nodes = tuple(_parse_node(item) for item in document["nodes"])
        names = {node.name for node in nodes}
        jobs = tuple(_parse_job(item) for item in document["jobs"])
        if len({job.name for job in jobs}) < len(jobs) or len(names) < len(nodes):
            raise ValueError("expected unique names")
        for job in jobs:
            if unknown_nodes := sorted(set(job.workers) - names):
                raise ValueError(f"job {job.name}: has workers on {unknown_nodes}, which are not among the nodes")
        snapshot = Snapshot(float(document["now"]), nodes, jobs, document.get("is_shared") is True)
        return SnapshotWithUnits(snapshot, str(document.get("resource", "")), float(document.get("unit", 1.0)))
    except (KeyError, TypeError, ValueError, AttributeError, SpecError) as exc:
        problem = f"{exc} is missing" if isinstance(exc, KeyError) else str(exc)
        raise DataError(f"{source}: not a snapshot: {problem}") from exc


def _job_document(job: JobInfo, snapshot: Snapshot, devices_per_node: dict[str, int]) -> Document:
    document = {field.name: getattr(job, field.name) for field in fields(JobInfo) if field.name != "rates"}
    for name in ("noise", "utility"):
        document[name] = asdict(document[name]) if document[name] is not None else None
    for name in ("constraints", "speeds"):
        document[name] = [asdict(field) for field in document[name]]
    for name in ("request", "workers"):
        document[name] = dict(document[name])
    max_workers = min(job.max_workers, max(snapshot.total_devices // job.devices, 1))
    document["rates"] = (
        RateTable.from_model(job.rates, max_workers, devices_per_node or {"": 1}, job.devices).to_document()
        if job.rates
        else None
    )
    return document


def _parse_node(document: Document) -> NodeInfo:
    node = NodeInfo(**document)
    _check_types(
        f"node {node.name}", {"devices": (node.devices, int), "kind": (node.kind, str), "rack": (node.rack, str)}
    )
    return node


def _parse_job(document: Document) -> JobInfo:
    values = dict(document)
    for name, item_type in (("constraints", PlacementConstraint), ("speeds", SpeedSample)):
        values[name] = tuple(item_type(**item) for item in values.get(name, ()))
    for name, kind in (("noise", GradientNoise), ("utility", UtilityFunction)):
        values[name] = kind(**values[name]) if values.get(name) is not None else None
    for name in ("sizes", "kinds"):
        values[name] = tuple(values.get(name, ()))
    values["rates"] = RateTable.from_document(values["rates"]) if values.get("rates") is not None else None
    job = JobInfo(**values)
    integers = {
        name: (getattr(job, name), int) for name in ("min_workers", "max_workers", "requested", "priority", "devices")
    }
    _check_types(
        f"job {job.name}", integers | {f"workers on {name}": (count, int) for name, count in job.workers.items()}
    )
    return job


def _check_types(owner: str, values: Mapping[str, tuple[Any, type]]) -> None:
    for name, (value, kind) in values.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{owner}: {name}: expected {kind.__name__}, received {value!r}")
