"""`elasticdl simulate --what-if`: a forecast for a job that is not there yet."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli.verbs.simulate import parse_cost, parse_policy_names
from elasticdl.errors import SpecError
from elasticdl.jobs import home
from elasticdl.jobs.lookup import KUBERNETES, connect_cluster

if TYPE_CHECKING:
    from elasticdl.scheduler.snapshot import JobInfo
    from elasticdl.scheduler.snapshot_file import SnapshotWithUnits
    from elasticdl.sim.forecast import Forecast
    from elasticdl.spec import JobSpec

DEFAULT_JOB_NAME = "what-if"  # of a job whose file gives it none
ELASTIC_JOB = "ElasticJob"


@dataclass(frozen=True, slots=True)
class WhatIfJob:
    """The job to forecast."""

    spec: JobSpec
    priority: int = 0
    namespace: str = ""  # of an ElasticJob that names one


def answer_what_if(values: dict[str, Any]) -> None:
    """Prints the forecast, and writes it to --json."""
    _refuse_trace_options(values)
    requested = _read_job(values["what_if"]) if values["what_if"] else None
    where, policy = _read_cluster(values, requested)
    if values["write_snapshot"]:
        from elasticdl.scheduler import snapshot_file

        snapshot_file.write_snapshot(values["write_snapshot"], where)
        click.echo(f"{values['write_snapshot']}: {_describe_cluster(where)}")
        if requested is None:
            return
    assert requested is not None
    from elasticdl.cli.verbs.scheduler import default_policy
    from elasticdl.scheduler import policies
    from elasticdl.scheduler.accounts.job_spec import job_info_from_spec
    from elasticdl.sim import forecast

    names = parse_policy_names(values["policy"]) if values["policy"] else [policy or default_policy()]
    priority = requested.priority if values["priority"] is None else values["priority"]
    job = job_info_from_spec(requested.spec, where, where.snapshot.now, priority)
    cost = parse_cost(values["restart_cost"], values["costs"])
    forecasts = {name: forecast.forecast_job(policies.load_policy(name), where.snapshot, job, cost) for name in names}
    for name, answer in forecasts.items():
        for line in describe_forecast(name, job, answer):
            click.echo(line)
    if values["json"]:
        document = {name: asdict(answer) | {"job": job.name} for name, answer in forecasts.items()}
        values["json"].write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _describe_cluster(where: SnapshotWithUnits) -> str:
    """2 nodes with 8 nvidia.com/gpu for workers, 3 jobs (1 waits)"""
    nodes, jobs = where.snapshot.nodes, where.snapshot.jobs
    devices = f"{where.snapshot.total_devices * where.unit:g} {where.resource or 'devices'}"
    waiting = sum(not job.workers for job in jobs)
    waits = f" ({waiting} without workers)" if waiting else ""
    counts = f"{len(nodes)} node{'s' * (len(nodes) != 1)} with {devices} for workers"
    return f"{counts}, {len(jobs)} job{'s' * (len(jobs) != 1)}{waits}"


def describe_forecast(policy: str, job: JobInfo, answer: Forecast) -> list[str]:
    """The answer in sentences."""
    from elasticdl.sim.results.table import format_duration

    if answer.is_rejected:
        return [f"{job.name} would never start under {policy}: {answer.reason}"]
    if answer.wait_s is None:
        lines = [f"{job.name} would not start within a week under {policy}, as far as known: {answer.reason}"]
    else:
        when = "at once" if not answer.wait_s else f"in about {format_duration(answer.wait_s)}"
        places = ", ".join(f"{count} on {node}" for node, count in sorted(answer.nodes.items()))
        workers = _count_of_workers(answer.workers)
        bound = f" of {job.max_workers} it could use" if answer.workers < job.max_workers else ""
        lines = [f"{job.name} would start {when} under {policy}, with {workers}{bound}: {places}", f"  {answer.reason}"]
        lines += [
            f"  {change.job}: {_count_of_workers(change.workers_with_job)} instead of {change.workers_without_job}: "
            f"{change.reason}"
            for change in answer.changes
        ]
        if not answer.changes:
            lines.append("  no other job has more or fewer workers for it")
    if answer.jobs_of_unknown_length and (answer.wait_s is None or answer.wait_s):
        lines.append(
            f"  a guess, since it is not known how long these jobs take: {', '.join(answer.jobs_of_unknown_length)}"
        )
    return lines


def _count_of_workers(count: int) -> str:
    return f"{count} worker{'s' * (count != 1)}"


def _refuse_trace_options(values: dict[str, Any]) -> None:
    for option in ("trace", "profiles", "jobs", "nodes", "racks", "parquet", "report", "processes"):
        if values[option] is not None:
            raise SpecError(f"--{option}: is for a trace; --what-if looks at the current cluster")
    if values["snapshot"] and any(values[option] for option in ("on", "context", "namespace", "device")):
        raise SpecError(
            "expected --snapshot, or a cluster with --on, --context, --namespace and --device; received both"
        )


def _read_job(path: Path) -> WhatIfJob:
    """A job file, or an ElasticJob as for `kubectl apply`."""
    from elasticdl.spec import load

    document = load.read_yaml_file(path)
    if document.get("kind") == ELASTIC_JOB:
        from elasticdl.scheduler.kubernetes.resource import parse_priority

        metadata = document.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            raise SpecError(f"{path}: an ElasticJob needs metadata.name")
        priority = parse_priority(metadata.get("annotations") or {})
        return WhatIfJob(load.resolve_elastic_job(document), priority, metadata.get("namespace") or "")
    document.setdefault("kind", "training")
    document.setdefault("name", DEFAULT_JOB_NAME)
    return WhatIfJob(load.resolve_job(document, str(path)))


def _read_cluster(values: dict[str, Any], requested: WhatIfJob | None) -> tuple[SnapshotWithUnits, str]:
    """As it stands, and the policy that decides there, if we know it."""
    if values["snapshot"]:
        from elasticdl.scheduler import snapshot_file

        return snapshot_file.read_snapshot(values["snapshot"]), ""
    now = time.time()
    if values["on"] == KUBERNETES or values["context"] or values["namespace"] or values["device"]:
        from elasticdl.jobs.kubernetes.preflight import check_namespace
        from elasticdl.kube.kinds import NODE
        from elasticdl.scheduler.accounts import job_spec
        from elasticdl.scheduler.kubernetes import capacity
        from elasticdl.scheduler.kubernetes.namespace import snapshot_namespace as picture_of

        api = connect_cluster(values["context"] or "")
        coming = [job_spec.worker_requests(requested.spec)] if requested else []
        device = values["device"] or (
            job_spec.worker_device_resource(requested.spec)
            if requested
            else capacity.default_device_resource(api.list(NODE)[0])
        )
        namespace = values["namespace"] or (requested.namespace if requested else "") or api.namespace
        check_namespace(api, namespace)
        return picture_of(api, namespace, device, now, coming), ""
    from elasticdl.scheduler.local import snapshot

    local = snapshot.load_local_snapshot(home.local_queue(), now)
    return local.snapshot, local.policy
