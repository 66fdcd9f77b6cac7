"""`elasticdl jobs`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence

import click

from elasticdl import jobs
from elasticdl.cli.arguments import location_options
from elasticdl.cli.command import Command
from elasticdl.jobs import formatting
from elasticdl.jobs.interface import THIS_MACHINE
from elasticdl.jobs.job_status import JobStatus
from elasticdl.jobs.lookup import LocationOptions

REASON_COLUMN = "why"
RIGHT_ALIGNED = frozenset({"workers", "ps", "records", "took"})
OPTIONAL_COLUMNS = (
    "kind",
    "took",
    "ps",
    "records",
    "where",
    "workers",
)  # in this order, until the others fit the terminal

EXAMPLES = """
elasticdl jobs
elasticdl jobs --json
elasticdl jobs --on kubernetes --namespace team-a
"""


@click.command("jobs", cls=Command, examples=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="Print a list of what `status --json` prints, for scripts.")
@location_options
def command(as_json: bool, location: LocationOptions) -> None:
    """List the jobs of this machine and of the cluster of the current context, the newest last."""
    all_jobs = jobs.list(**location, warn=lambda note: click.echo(f"note: {note}", err=True))
    statuses = [(job, job.quick_status()) for job in all_jobs]
    if as_json:
        click.echo(
            json.dumps([job.status_document(status) | {"where": job.location} for job, status in statuses], indent=1)
        )
        return
    if not statuses:
        click.echo("no jobs yet; begin with `elasticdl zoo init DIR`, then `elasticdl train`")
        return
    rows = [_row(status) for _, status in statuses]
    # Lines are shortened for terminals only.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    header, *lines = format_table(rows, width)
    click.secho(header, fg="bright_black")
    for line in lines:
        click.echo(line)


def _row(status: JobStatus) -> dict[str, str]:
    return {
        "job": status.name,
        "where": status.location,
        "kind": status.kind,
        "phase": status.phase,
        "workers": str(len(status.living_workers)),
        "ps": str(len(status.living_ps)) if status.desired_ps and not status.is_over else "",
        "records": f"{status.records:,} of {status.total_records:,}" if status.total_records else "",
        "took": formatting.format_duration(status.updated_at - status.started_at),
        "why": "" if status.is_over else status.reason,
    }


def format_table(rows: Sequence[Mapping[str, str]], width: int | None) -> list[str]:
    """A header and a line for each row. Columns, never names, are left out where the terminal is not wide enough. Pure.

    The reason stands last, where a terminal may break it.
    """
    columns = [name for name in rows[0] if name != REASON_COLUMN and any(row[name] for row in rows)]
    if all(row["where"] == THIS_MACHINE for row in rows):
        columns.remove("where")
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in columns}
    for name in OPTIONAL_COLUMNS:
        if width is not None and name in columns and sum(widths[column] + 2 for column in columns) - 2 > width:
            columns.remove(name)
    if width is not None:
        # A name that is too long for its line moves what follows it, not the columns of all others.
        room = max(0, width - sum(widths[column] + 2 for column in columns if column != "job"))
        fitting = [len(row["job"]) for row in rows if len(row["job"]) <= room]
        widths["job"] = max(len("job"), *fitting, 0)
    has_why = any(row[REASON_COLUMN] for row in rows)
    lines = []
    for row in ({name: name for name in rows[0]}, *rows):
        cells = [
            row[name].rjust(widths[name]) if name in RIGHT_ALIGNED else row[name].ljust(widths[name])
            for name in columns
        ]
        lines.append("  ".join([*cells, *([row[REASON_COLUMN]] if has_why else [])]).rstrip())
    return lines
