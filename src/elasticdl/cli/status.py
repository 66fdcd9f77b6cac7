"""`elasticdl status`."""

from __future__ import annotations

import json

import click

from elasticdl.cli import home
from elasticdl.cli.command import Command

EXAMPLES = """
elasticdl status mnist
elasticdl status mnist --json
elasticdl status mnist --events
"""


@click.command("status", cls=Command, examples=EXAMPLES)
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="For scripts: everything, as one JSON document.")
@click.option("--events", "all_events", is_flag=True, help="Every event since the start, not only the newest.")
def command(job: str, as_json: bool, all_events: bool) -> None:
    """Show how JOB stands: workers, progress, and who came or left when, why, and what it cost.

    Works on a job that is over, too.
    """
    from elasticdl.cli import document, history, plain, summary, view, words
    from elasticdl.cli.look import look

    directory = home.find(job)
    status = look(directory, timeout_s=5.0)
    events = [history.event(one) for one in history.read_events(directory)]
    if as_json:
        told = document.of(status, directory) | {"events": [document.event(one) for one in events or status.events]}
        click.echo(json.dumps(told, indent=1))
        return
    if all_events:
        for event in events or status.events:
            click.echo(plain.event_line(event))
        return
    from rich.console import Console

    console = Console()
    console.print(view.job(status))
    if status.phase in words.OVER:
        summary.show(status, directory, console)
