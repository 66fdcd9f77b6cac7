"""`elasticdl jobs`."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence

import click

from elasticdl.cli import home, words
from elasticdl.cli.command import Command
from elasticdl.cli.interface import Job
from elasticdl.cli.local_job import HERE, LocalJob
from elasticdl.cli.place import KUBERNETES, Place, connect, has_cluster, place_options
from elasticdl.errors import ElasticDLError
from elasticdl.rpc import elasticdl_pb2 as pb

WHY = "why"
NUMBERS = frozenset({"workers", "ps", "records", "took"})
LEFT_OUT = ("kind", "took", "ps", "records", "where", "workers")  # in this order, until the others fit the terminal
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
    rows = [_row(job, status) for job, status in found]
    # Without a terminal nobody's lines are too long.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    header, *lines = table_lines(rows, width)
    click.secho(header, fg="bright_black")
    for line in lines:
        click.echo(line)


def _row(job: Job, status: pb.JobStatus) -> dict[str, str]:
    is_over = status.phase in words.OVER
    return {
        "job": job.name,
        "where": job.where,
        "kind": status.kind,
        "phase": status.phase,
        "workers": str(0 if is_over else len(words.living(status))),
        "ps": str(len(words.living_ps(status))) if status.wished_ps and not is_over else "",
        "records": f"{status.records:,} of {status.total_records:,}" if status.total_records else "",
        "took": words.duration(status.now - status.started_at),
        "why": _why(status),
    }


def table_lines(rows: Sequence[Mapping[str, str]], width: int | None) -> list[str]:
    """A header and a line for each row. Columns, never names, are left out where the terminal is not wide enough. Pure.

    The reason stands last, where a terminal may break it.
    """
    columns = [name for name in rows[0] if name != WHY and any(row[name] for row in rows)]
    if all(row["where"] == HERE for row in rows):
        columns.remove("where")
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in columns}
    for name in LEFT_OUT:
        if width is not None and name in columns and sum(widths[one] + 2 for one in columns) - 2 > width:
            columns.remove(name)
    if width is not None:
        # A name that is too long for its line moves what follows it, not the columns of all others.
        room = max(0, width - sum(widths[one] + 2 for one in columns if one != "job"))
        fitting = [len(row["job"]) for row in rows if len(row["job"]) <= room]
        widths["job"] = max(len("job"), *fitting, 0)
    has_why = any(row[WHY] for row in rows)
    lines = []
    for row in ({name: name for name in rows[0]}, *rows):
        cells = [
            row[name].rjust(widths[name]) if name in NUMBERS else row[name].ljust(widths[name]) for name in columns
        ]
        lines.append("  ".join([*cells, *([row[WHY]] if has_why else [])]).rstrip())
    return lines


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
