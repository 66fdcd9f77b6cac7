"""`elasticdl doctor`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from elasticdl.cli import installation
from elasticdl.cli.command import Command
from elasticdl.cli.installation import MISSING, NOTE, OK, Finding
from elasticdl.cli.place import KUBERNETES, Place, has_cluster, place_options

_MARKS = {OK: ("ok", "green"), MISSING: ("not ok", "red"), NOTE: ("note", "yellow")}

EXAMPLES = """
elasticdl doctor
elasticdl doctor --context production --namespace team-a
elasticdl doctor --on local --json
"""


@click.command("doctor", cls=Command, examples=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="For scripts: a list of what was found.")
@place_options
def command(as_json: bool, place: Place) -> int:
    """Check what jobs need: of this installation, and of the cluster of the context.

    Access, rights, versions, quotas: a line each, with the fix. Ends with 1 where something needed is missing. Where no
    cluster is configured, jobs run on this machine and none is needed; --on kubernetes insists on one.
    """
    found: list[Finding] = []
    for finding in _all(place):
        found.append(finding)
        if not as_json:
            _say(finding)
    if as_json:
        click.echo(json.dumps([finding._asdict() for finding in found], indent=1))
    return int(any(finding.state == MISSING for finding in found))


def _all(place: Place) -> Iterator[Finding]:
    from elasticdl.cli import diagnosis

    yield from installation.findings()
    if place.must_be_here:
        return
    if place.may_be_here and place.on != KUBERNETES and not has_cluster():
        yield diagnosis.no_cluster()
        return
    yield from diagnosis.findings(place.context, place.namespace)


def _say(finding: Finding) -> None:
    mark, color = _MARKS[finding.state]
    click.echo(f"{click.style(f'{mark:<6}', fg=color)}  {finding.what}: {finding.told}")
    if finding.fix:
        click.echo(f"{'':8}fix: {finding.fix}")
