"""`elasticdl simulate --what-if`: a job that is not there yet, on a cluster as it stands."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli import home
from elasticdl.cli.place import KUBERNETES, connect
from elasticdl.cli.simulate import cost_of, policy_names
from elasticdl.errors import SpecError

if TYPE_CHECKING:
    from elasticdl.scheduler.snapshot import Job
    from elasticdl.scheduler.snapshot_file import Pictured
    from elasticdl.sim.forecast import Forecast
    from elasticdl.spec import JobSpec

NAME = "what-if"  # of a job whose file gives it none
ELASTIC_JOB = "ElasticJob"


@dataclass(frozen=True, slots=True)
class Asked:
    """The job that a person asks about."""

    spec: JobSpec
    priority: int = 0
    namespace: str = ""  # of an ElasticJob that names one


def answer(given: dict[str, Any]) -> None:
    """Says it to a person, and writes it to --json."""
    _refuse_others(given)
    asked = _asked(given["what_if"]) if given["what_if"] else None
    where, policy = _cluster(given, asked)
    if given["write_snapshot"]:
        from elasticdl.scheduler import snapshot_file

        snapshot_file.write(given["write_snapshot"], where)
        click.echo(f"{given['write_snapshot']}: {_contents(where)}")
        if asked is None:
            return
    assert asked is not None
    from elasticdl.cli.scheduler import default_policy
    from elasticdl.scheduler import policies
    from elasticdl.scheduler.described import job_of
    from elasticdl.sim import forecast

    names = policy_names(given["policy"]) if given["policy"] else [policy or default_policy()]
    priority = asked.priority if given["priority"] is None else given["priority"]
    job = job_of(asked.spec, where, where.snapshot.now, priority)
    cost = cost_of(given["restart_cost"], given["costs"])
    found = {name: forecast.forecast(policies.named(name), where.snapshot, job, cost) for name in names}
    for name, one in found.items():
        for line in told(name, job, one):
            click.echo(line)
    if given["json"]:
        document = {name: asdict(one) | {"job": job.name} for name, one in found.items()}
        given["json"].write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _contents(where: Pictured) -> str:
    """2 nodes with 8 nvidia.com/gpu for workers, 3 jobs (1 waits)"""
    nodes, jobs = where.snapshot.nodes, where.snapshot.jobs
    devices = f"{where.snapshot.devices * where.unit:g} {where.resource or 'devices'}"
    waiting = sum(not job.workers for job in jobs)
    waits = f" ({waiting} without workers)" if waiting else ""
    counts = f"{len(nodes)} node{'s' * (len(nodes) != 1)} with {devices} for workers"
    return f"{counts}, {len(jobs)} job{'s' * (len(jobs) != 1)}{waits}"


def told(policy: str, job: Job, one: Forecast) -> list[str]:
    """The answer in sentences."""
    from elasticdl.sim.columns import duration

    if one.is_rejected:
        return [f"{job.name} would never start under {policy}: {one.reason}"]
    if one.wait_s is None:
        lines = [f"{job.name} would not start within a week under {policy}, as far as anybody knows: {one.reason}"]
    else:
        when = "at once" if not one.wait_s else f"in about {duration(one.wait_s)}"
        places = ", ".join(f"{count} on {node}" for node, count in sorted(one.nodes.items()))
        workers = _workers(one.workers)
        wanted = f" of {job.maximum} it could use" if one.workers < job.maximum else ""
        lines = [f"{job.name} would start {when} under {policy}, with {workers}{wanted}: {places}", f"  {one.reason}"]
        lines += [
            f"  {change.job}: {_workers(change.with_it)} instead of {change.without}: {change.reason}"
            for change in one.changes
        ]
        if not one.changes:
            lines.append("  no other job has more or fewer workers for it")
    if one.guessed and (one.wait_s is None or one.wait_s):
        lines.append(f"  guessed, since nobody knows how long they go on: {', '.join(one.guessed)}")
    return lines


def _workers(count: int) -> str:
    return f"{count} worker{'s' * (count != 1)}"


def _refuse_others(given: dict[str, Any]) -> None:
    for option in ("trace", "profiles", "jobs", "nodes", "racks", "parquet", "report", "processes"):
        if given[option] is not None:
            raise SpecError(f"--{option}: is for a trace; --what-if looks at the cluster as it stands")
    if given["snapshot"] and any(given[option] for option in ("on", "context", "namespace", "device")):
        raise SpecError(
            "expected --snapshot, or a cluster with --on, --context, --namespace and --device; received both"
        )


def _asked(path: Path) -> Asked:
    """A job file, or an ElasticJob as for `kubectl apply`."""
    from elasticdl.spec import elastic_job, load

    document = load.read_file(path)
    if document.get("kind") == ELASTIC_JOB:
        from elasticdl.scheduler.cluster.resource import priority_of

        metadata = document.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            raise SpecError(f"{path}: an ElasticJob needs metadata.name")
        priority = priority_of(metadata.get("annotations") or {})
        return Asked(elastic_job.job_of(document), priority, metadata.get("namespace") or "")
    document.setdefault("kind", "training")
    document.setdefault("name", NAME)
    return Asked(load.resolve(document, str(path)))


def _cluster(given: dict[str, Any], asked: Asked | None) -> tuple[Pictured, str]:
    """As it stands, and the policy that decides there, if we know it."""
    if given["snapshot"]:
        from elasticdl.scheduler import snapshot_file

        return snapshot_file.read(given["snapshot"]), ""
    now = time.time()
    if given["on"] == KUBERNETES or given["context"] or given["namespace"] or given["device"]:
        from elasticdl.cli.cluster_check import check_namespace
        from elasticdl.kube.kinds import NODE
        from elasticdl.scheduler import described
        from elasticdl.scheduler.cluster import capacity
        from elasticdl.scheduler.cluster.picture import picture as picture_of

        api = connect(given["context"] or "")
        coming = [described.requests(asked.spec)] if asked else []
        device = given["device"] or (described.resource_of(asked.spec) if asked else capacity.shared(api.list(NODE)[0]))
        namespace = given["namespace"] or (asked.namespace if asked else "") or api.namespace
        check_namespace(api, namespace)
        return picture_of(api, namespace, device, now, coming), ""
    from elasticdl.scheduler.local import picture

    found = picture.picture(home.queue(), now)
    return found.pictured, found.policy
