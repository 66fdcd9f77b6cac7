"""The argument JOB: a whole name, a prefix that only one job has, or `last`; completed by the shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from elasticdl.cli.command import Decorated
from elasticdl.errors import SpecError

LAST = "last"
JOB_HELP = "JOB is a name, the beginning of one that no other job shares, or `last` for the newest job."


def resolve_name(word: str, names: Sequence[str]) -> str | None:
    """The name of `names`, the newest last, that `word` means; None if it means none.

    Raises SpecError, with the candidates, where several names begin with it.
    """
    if word in names or not word:
        return word or None
    if word == LAST:
        return names[-1] if names else None
    candidates = [name for name in names if name.startswith(word)]
    if len(candidates) > 1:
        raise SpecError(f"{word!r} is the beginning of several jobs: {', '.join(candidates)}; write more of the name")
    return candidates[0] if candidates else None


def complete_job_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The jobs of this machine for the shell's completion, the newest first. Never asks a cluster."""
    from elasticdl.jobs import home

    names = [*reversed(home.job_names()), LAST]
    return [name for name in names if name.startswith(incomplete)]


def job_argument(*, is_optional: bool = False) -> Callable[[Decorated], Decorated]:
    """The argument JOB. With `is_optional` no name means the newest job."""
    return click.argument(
        "job",
        required=not is_optional,
        default=LAST if is_optional else None,
        metavar="[JOB]" if is_optional else "JOB",
        shell_complete=complete_job_names,
    )
