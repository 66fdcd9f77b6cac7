"""A snapshot as a JSON document, to be looked at elsewhere: what a policy knows, rates as a table of sizes."""

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
    """A snapshot, and what its devices are: `unit` of `resource` each, where they are those of Kubernetes."""

    snapshot: Snapshot
    resource: str = ""  # cpu, nvidia.com/gpu; "": threads of this machine
    unit: float = 1.0


def write_snapshot(path: Path, pictured: SnapshotWithUnits) -> None:
    try:
        atomic.write_file(path, json.dumps(to_document(pictured), indent=1) + "\n")
    except OSError as exc:
        raise SpecError(f"{path}: the snapshot cannot be written: {exc}") from exc


def read_snapshot(path: Path) -> SnapshotWithUnits:
    try:
        document = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as exc:
        raise DataError(f"{path}: expected a snapshot in JSON: {exc}") from exc
    return from_document(document, str(path))


def to_document(pictured: SnapshotWithUnits) -> Document:
    snapshot = pictured.snapshot
    per_node: dict[str, int] = {}
    for node in snapshot.nodes:
        per_node[node.kind] = max(per_node.get(node.kind, 0), node.devices)
    return {
        "version": VERSION,
        "now": snapshot.now,
        "is_shared": snapshot.is_shared,
        "resource": pictured.resource,
        "unit": pictured.unit,
        "nodes": [asdict(node) for node in snapshot.nodes],
        "jobs": [_job_document(job, snapshot, per_node) for job in snapshot.jobs],
    }


def from_document(document: Any, where: str) -> SnapshotWithUnits:
    """DataError with what is wrong, and with whom."""
    if not isinstance(document, dict) or document.get("version") != VERSION:
        received = document.get("version") if isinstance(document, dict) else type(document).__name__
        raise DataError(f"{where}: expected a snapshot of version {VERSION}, received {received!r}")
    try:
        nodes = tuple(_parse_node(one) for one in document["nodes"])
        names = {node.name for node in nodes}
        jobs = tuple(_parse_job(one) for one in document["jobs"])
        if len({job.name for job in jobs}) < len(jobs) or len(names) < len(nodes):
            raise ValueError("expected each name once")
        for job in jobs:
            if lost := sorted(set(job.workers) - names):
                raise ValueError(f"job {job.name}: has workers on {lost}, which are not among the nodes")
        snapshot = Snapshot(float(document["now"]), nodes, jobs, document.get("is_shared") is True)
        return SnapshotWithUnits(snapshot, str(document.get("resource", "")), float(document.get("unit", 1.0)))
    except (KeyError, TypeError, ValueError, AttributeError, SpecError) as exc:
        what = f"{exc} is missing" if isinstance(exc, KeyError) else str(exc)
        raise DataError(f"{where}: not a snapshot: {what}") from exc


def _job_document(job: JobInfo, snapshot: Snapshot, per_node: dict[str, int]) -> Document:
    found = {one.name: getattr(job, one.name) for one in fields(JobInfo) if one.name != "rates"}
    for name in ("noise", "utility"):
        found[name] = asdict(found[name]) if found[name] is not None else None
    for name in ("constraints", "speeds"):
        found[name] = [asdict(one) for one in found[name]]
    for name in ("request", "workers"):
        found[name] = dict(found[name])
    most = min(job.max_workers, max(snapshot.total_devices // job.devices, 1))
    found["rates"] = (
        RateTable.from_model(job.rates, most, per_node or {"": 1}, job.devices).to_document() if job.rates else None
    )
    return found


def _parse_node(document: Document) -> NodeInfo:
    node = NodeInfo(**document)
    _check_types(
        f"node {node.name}", {"devices": (node.devices, int), "kind": (node.kind, str), "rack": (node.rack, str)}
    )
    return node


def _parse_job(document: Document) -> JobInfo:
    given = dict(document)
    for name, made in (("constraints", PlacementConstraint), ("speeds", SpeedSample)):
        given[name] = tuple(made(**one) for one in given.get(name, ()))
    for name, kind in (("noise", GradientNoise), ("utility", UtilityFunction)):
        given[name] = kind(**given[name]) if given.get(name) is not None else None
    for name in ("sizes", "kinds"):
        given[name] = tuple(given.get(name, ()))
    given["rates"] = RateTable.from_document(given["rates"]) if given.get("rates") is not None else None
    job = JobInfo(**given)
    counts = {
        name: (getattr(job, name), int) for name in ("min_workers", "max_workers", "requested", "priority", "devices")
    }
    _check_types(f"job {job.name}", counts | {f"workers on {name}": (n, int) for name, n in job.workers.items()})
    return job


def _check_types(who: str, values: Mapping[str, tuple[Any, type]]) -> None:
    for name, (value, kind) in values.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{who}: {name}: expected {kind.__name__}, received {value!r}")
