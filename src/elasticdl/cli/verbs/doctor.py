"""`elasticdl doctor`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from elasticdl.cli.arguments import location_options
from elasticdl.cli.command import Command
from elasticdl.jobs.diagnosis import installation
from elasticdl.jobs.diagnosis.installation import MISSING, NOTE, OK, DiagnosisFinding
from elasticdl.jobs.lookup import KUBERNETES, JobLocation, LocationOptions, is_cluster_configured

_MARKS = {OK: ("ok", "green"), MISSING: ("not ok", "red"), NOTE: ("note", "yellow")}

EXAMPLES = """
elasticdl doctor
elasticdl doctor --context production --namespace team-a
elasticdl doctor --on local --json
"""


@click.command("doctor", cls=Command, examples=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON list, for scripts.")
@location_options
def command(as_json: bool, location: LocationOptions) -> int:
    """Check this installation, and the cluster of the context, for what jobs need.

    Prints a line for each of access, rights, versions and quotas, with the fix. The exit code is 1 if something that is
    needed is missing. If no cluster is configured, only this machine is checked, unless you give --on kubernetes.
    """
    findings: list[DiagnosisFinding] = []
    for finding in _all_findings(JobLocation.from_options(**location)):
        findings.append(finding)
        if not as_json:
            _print_finding(finding)
    if as_json:
        click.echo(json.dumps([finding._asdict() for finding in findings], indent=1))
    return int(any(finding.state == MISSING for finding in findings))


def _all_findings(location: JobLocation) -> Iterator[DiagnosisFinding]:
    from elasticdl.jobs.diagnosis import cluster

    yield from installation.diagnose_installation()
    if location.must_be_local:
        return
    if location.may_be_local and location.on != KUBERNETES and not is_cluster_configured():
        yield cluster.no_cluster_finding()
        return
    yield from cluster.diagnose_cluster(location.context, location.namespace)


def _print_finding(finding: DiagnosisFinding) -> None:
    mark, color = _MARKS[finding.state]
    click.echo(f"{click.style(f'{mark:<6}', fg=color)}  {finding.subject}: {finding.message}")
    if finding.fix:
        click.echo(f"{'':8}fix: {finding.fix}")
