"""`elasticdl jobs`."""

from __future__ import annotations

import json
import threading

import click

from elasticdl.cli import home, words
from elasticdl.cli.command import Command
from elasticdl.cli.interface import Job
from elasticdl.cli.local_job import HERE, LocalJob
from elasticdl.cli.place import KUBERNETES, Place, connect, has_cluster, place_options
from elasticdl.errors import ElasticDLError
from elasticdl.rpc import elasticdl_pb2 as pb

CLUSTER_S = 2.0  # a cluster that has not answered by then is left out

EXAMPLES = """
elasticdl jobs
elasticdl jobs --json
elasticdl jobs --on kubernetes --namespace team-a
"""


@click.command("jobs", cls=Command, examples=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="For scripts: a list of what `status --json` gives.")
@place_options
def command(as_json: bool, place: Place) -> None:
    """List the jobs of this machine and of the cluster of the current context, the newest last."""
    jobs: list[Job] = []
    if place.may_be_here:
        jobs += [LocalJob(directory) for directory in map(home.directory_of, home.names())]
    if not place.must_be_here and (has_cluster() or not place.may_be_here):
        jobs += _of_cluster(place)
    found = [(job, job.glance()) for job in jobs]
    if as_json:
        click.echo(json.dumps([job.document(status) | {"where": job.where} for job, status in found], indent=1))
        return
    if not found:
        click.echo("no jobs yet; begin with `elasticdl zoo init DIR`, then `elasticdl train`")
        return
    from rich.console import Console
    from rich.table import Table

    has_where = any(job.where != HERE for job in jobs)
    has_why = any(_why(status) for _, status in found)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black")
    columns = ("job", *(["where"] if has_where else []), "kind", "phase", "workers", "ps", "records", "took")
    for column in (*columns, *(["why"] if has_why else [])):
        table.add_column(column, justify="right" if column in ("workers", "ps", "records", "took") else "left")
    for job, status in found:
        table.add_row(
            job.name,
            *([job.where] if has_where else []),
            status.kind,
            status.phase,
            str(len(words.living(status)) if status.phase not in words.OVER else 0),
            str(len(words.living_ps(status))) if status.wished_ps and status.phase not in words.OVER else "",
            f"{status.records:,} of {status.total_records:,}" if status.total_records else "",
            words.duration(status.now - status.started_at),
            *([_why(status)] if has_why else []),
        )
    Console(soft_wrap=True).print(table)


def _why(status: pb.JobStatus) -> str:
    """Why a job waits, or has fewer workers than it could use."""
    return status.reason if status.phase not in words.OVER else ""


def _of_cluster(place: Place) -> list[Job]:
    """Those of the cluster; a note instead, where it cannot be asked and the person did not ask for it."""
    found: list[Job] = []
    problems: list[ElasticDLError] = []

    def ask() -> None:
        from elasticdl.cli import cluster_job

        try:
            api = connect(place.context)
            found.extend(cluster_job.all_of(api, place.namespace or api.namespace))
        except ElasticDLError as exc:
            problems.append(exc)

    if place.on == KUBERNETES or not place.may_be_here:
        ask()
        if problems:
            raise problems[0]
        return found
    # A thread of its own: whatever the way to the cluster hangs on, the list of this machine does not wait for it.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(CLUSTER_S)
    if asking.is_alive():
        click.echo(f"note: the cluster did not answer within {CLUSTER_S:.0f} s; its jobs are left out", err=True)
        return []
    for problem in problems:
        click.echo(f"note: without the jobs of the cluster: {problem}", err=True)
    return found
