"""`elasticdl jobs`."""

from __future__ import annotations

import json

import click

from elasticdl.cli import home
from elasticdl.cli.command import Command

EXAMPLES = """
elasticdl jobs
elasticdl jobs --json
"""


@click.command("jobs", cls=Command, examples=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="For scripts: a list of what `status --json` gives.")
def command(as_json: bool) -> None:
    """List the jobs of this machine, the newest last."""
    from elasticdl.cli import document, words
    from elasticdl.cli.look import look

    found = [(directory, look(directory, timeout_s=1.0)) for directory in map(home.directory_of, home.names())]
    if as_json:
        click.echo(json.dumps([document.of(status, directory) for directory, status in found], indent=1))
        return
    if not found:
        click.echo("no jobs yet; begin with `elasticdl zoo init DIR`, then `elasticdl train`")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black")
    for column in ("job", "kind", "phase", "workers", "ps", "records", "took"):
        table.add_column(column, justify="right" if column in ("workers", "ps", "records", "took") else "left")
    for _, status in found:
        table.add_row(
            status.name,
            status.kind,
            status.phase,
            str(len(words.living(status)) if status.phase not in words.OVER else 0),
            str(len(words.living_ps(status))) if status.wished_ps and status.phase not in words.OVER else "",
            f"{status.records:,} of {status.total_records:,}" if status.total_records else "",
            words.duration(status.now - status.started_at),
        )
    Console(soft_wrap=True).print(table)
