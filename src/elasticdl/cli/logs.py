"""`elasticdl logs`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from elasticdl.cli import home
from elasticdl.cli.command import Command, nearest
from elasticdl.errors import SpecError
from elasticdl.spec.directory import JobDirectory

POLL_S = 0.2

EXAMPLES = """
elasticdl logs mnist
elasticdl logs mnist --worker 2 -f
elasticdl logs ctr --ps 0
elasticdl logs mnist --master
"""


@click.command("logs", cls=Command, examples=EXAMPLES)
@click.argument("job")
@click.option("--worker", metavar="W", help="Only this worker: worker-2, or 2.")
@click.option("--ps", metavar="P", help="Only this parameter server: ps-0, or 0.")
@click.option("--master", is_flag=True, help="Only the master.")
@click.option("--launcher", is_flag=True, help="Only the launcher.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over.")
def command(job: str, worker: str | None, ps: str | None, master: bool, launcher: bool, follow: bool) -> None:
    """Show what the processes of JOB wrote; all of them, each line with its writer, unless one is named."""
    if sum((worker is not None, ps is not None, master, launcher)) > 1:
        raise click.UsageError("--worker, --ps, --master and --launcher exclude each other")
    directory = home.find(job)
    replica = "master" if master else "launcher" if launcher else None
    for role, given in (("worker", worker), ("ps", ps)):
        replica = _replica(directory, role, given) if given else replica
    tails: dict[Path, Tail] = {}
    while True:
        # Asked before reading: what was written until then will be read.
        is_over = not follow or not home.is_starting_or_alive(directory)
        for path in sorted(directory.logs.glob("*.log")) if replica is None else [directory.log(replica)]:
            tail = tails.setdefault(path, Tail(path))
            for line in tail.lines(is_last=is_over):
                click.echo(line if replica else f"{path.stem:>9} | {line}")
        if is_over:
            return
        time.sleep(POLL_S)


class Tail:
    """The lines a growing file has had since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = b""

    def lines(self, *, is_last: bool = False) -> Iterator[str]:
        """Whole lines; with `is_last` also an unfinished one."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            new = b""
        self._read += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        if is_last and self._rest:
            whole, self._rest = [*whole, self._rest], b""
        for line in whole:
            yield line.decode(errors="replace")


def _replica(directory: JobDirectory, role: str, given: str) -> str:
    """The worker or ps meant: by its id, or by its number alone."""
    known = [path.stem for path in sorted(directory.logs.glob(f"{role}-*.log"))]
    name = given if given.startswith(f"{role}-") else f"{role}-{given}"
    if name not in known:
        there = f"; there are {', '.join(known)}" if known else f"; no {role} has started yet"
        raise SpecError(f"job {directory.root.name!r} has no {name}" + nearest(name, known, there))
    return name
