"""`elasticdl journal`: verify the journal that a job's master writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from elasticdl import jobs
from elasticdl.cli.arguments import job_argument, location_options
from elasticdl.cli.command import Command
from elasticdl.errors import JournalDamaged, JournalUnreadable
from elasticdl.jobs.lookup import LocationOptions

if TYPE_CHECKING:
    from elasticdl.master.runtime.replay import JournalVerification, StoredJournal
    from elasticdl.spec import JobSpec

EXAMPLES = """
elasticdl journal verify
elasticdl journal verify mnist
elasticdl journal verify mnist --on kubernetes --namespace team-a
"""
EXIT_DAMAGED = 1


@click.group("journal")
def command() -> None:
    """The journal of a job: every event that its master acted on."""


@command.command("verify", cls=Command, examples=EXAMPLES)
@job_argument(is_optional=True)
@location_options
@click.pass_context
def verify_command(ctx: click.Context, job: str, location: LocationOptions) -> None:
    """Read the journal of JOB as a master would, and report whether it is intact. Changes nothing.

    The exit code is 0 if it is intact, and 1 if it is damaged or of a version that this one cannot read. Then the
    output says what is lost and how to resume. Works while the job runs, too. Without JOB: the newest job.
    """
    from elasticdl.master.runtime import replay

    found_job = jobs.find(job, **location)
    try:
        stored, spec = found_job.read_journal()
    except (JournalDamaged, JournalUnreadable) as exc:  # not even its parts can be put together
        click.echo(str(exc))
        ctx.exit(EXIT_DAMAGED)
    verified = replay.verify_journal(stored, spec)
    for line in describe_verification(found_job.name, stored, spec, verified):
        click.echo(line)
    if verified.problem is not None:
        ctx.exit(EXIT_DAMAGED)


def describe_verification(
    name: str, stored: StoredJournal, spec: JobSpec, verification: JournalVerification
) -> list[str]:
    from elasticdl.jobs import formatting

    by = (
        f", run {verification.writer.run}, last written by ElasticDL {verification.writer.version}"
        if verification.writer
        else ""
    )
    lines = [f"journal of {name}: {stored.location}, {len(stored.content):,} bytes{by}"]
    extent = f"{verification.events:,} events" + (
        f" until {formatting.format_time(verification.last_event_at)}, step {verification.step:,}"
        if verification.events
        else ""
    )
    if verification.problem is None:
        lines.append(f"whole: {extent}")
        if verification.torn_bytes:
            lines.append(
                f"its last {verification.torn_bytes:,} bytes are of a write that was cut off or is under way; no "
                "master has acted on it, and the next one removes it"
            )
        return lines
    lines += [str(verification.problem), f"before that: {extent}"]
    if verification.lost_events:
        last = formatting.format_time(verification.last_lost_event_at)
        lines.append(f"lost: {verification.lost_events:,} events that can be read behind it, until {last}")
    lines.append(f"resume from the newest checkpoint: {_resume_instructions(name, spec)}")
    return lines


def _resume_instructions(name: str, spec: JobSpec) -> str:
    from elasticdl.jobs import formatting

    if spec.cluster is not None:
        return f"delete the job with `elasticdl stop {name} --delete`, and submit it again with --resume"
    return formatting.resume_command(name, spec.kind)
