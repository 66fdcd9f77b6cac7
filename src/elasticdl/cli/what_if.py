"""`elasticdl simulate --what-if`: a job that is not there yet, on a cluster as it stands."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
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


def answer(given: dict[str, Any]) -> None:
    """Says it to a person, and writes it to --json."""
    _refuse_others(given)
    spec = _spec(given["what_if"]) if given["what_if"] else None
    where, policy = _cluster(given, spec)
    if given["write_snapshot"]:
        from elasticdl.scheduler import snapshot_file

        snapshot_file.write(given["write_snapshot"], where)
        snapshot = where.snapshot
        click.echo(f"{given['write_snapshot']}: {len(snapshot.nodes)} nodes, {len(snapshot.jobs)} jobs")
        if spec is None:
            return
    assert spec is not None
    from elasticdl.cli.scheduler import default_policy
    from elasticdl.scheduler import policies
    from elasticdl.sim import forecast

    names = policy_names(given["policy"]) if given["policy"] else [policy or default_policy()]
    job = _job(spec, where, given["priority"])
    cost = cost_of(given["restart_cost"], given["costs"])
    found = {name: forecast.forecast(policies.named(name), where.snapshot, job, cost) for name in names}
    for name, one in found.items():
        for line in told(name, job, one):
            click.echo(line)
    if given["json"]:
        document = {name: asdict(one) | {"job": job.name} for name, one in found.items()}
        given["json"].write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def told(policy: str, job: Job, one: Forecast) -> list[str]:
    """The answer in sentences."""
    from elasticdl.sim.columns import duration

    if one.is_rejected:
        return [f"{job.name} would never start under {policy}: {one.reason}"]
    if one.wait_s is None:
        lines = [f"{job.name} would not start within a week under {policy}: {one.reason}"]
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
    if given["snapshot"] and (given["on"] or given["context"] or given["namespace"]):
        raise SpecError("expected --snapshot, or a cluster with --on, --context and --namespace; received both")


def _spec(path: Path) -> JobSpec:
    from elasticdl.spec import load

    document = load.read_file(path)
    document.setdefault("kind", "training")
    document.setdefault("name", NAME)
    return load.resolve(document, str(path))


def _cluster(given: dict[str, Any], spec: JobSpec | None) -> tuple[Pictured, str]:
    """As it stands, and the policy that decides there, if we know it."""
    if given["snapshot"]:
        from elasticdl.scheduler import snapshot_file

        return snapshot_file.read(given["snapshot"]), ""
    now = time.time()
    if given["on"] == KUBERNETES or given["context"] or given["namespace"]:
        from elasticdl.scheduler import described

        resource = described.resource_of(spec) if spec else described.CPU
        api = connect(given["context"] or "")
        from elasticdl.scheduler import cluster_snapshot

        return cluster_snapshot.picture(api, given["namespace"] or api.namespace, resource, now), ""
    from elasticdl.scheduler.local import picture

    found = picture.picture(home.queue(), now)
    return found.pictured, found.policy


def _job(spec: JobSpec, where: Pictured, priority: int | None) -> Job:
    from elasticdl.scheduler.described import job_of

    job = job_of(spec, where, created_at=where.snapshot.now)
    return job if priority is None else replace(job, priority=priority)
