"""What verbs for existing jobs share: the argument JOB, completed by the shell, and where the job is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from elasticdl.cli.command import Decorated
from elasticdl.jobs.home import LAST
from elasticdl.jobs.lookup import KUBERNETES, LOCAL, LocationOptions


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


def on_option(help_text: str, **more: Any) -> Callable[[Decorated], Decorated]:
    return click.option("--on", type=click.Choice((LOCAL, KUBERNETES)), default=None, help=help_text, **more)


def location_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --on, --namespace and --context, which the function receives together as `location`."""

    @functools.wraps(function)
    def with_location(*, on: str | None, namespace: str | None, context: str | None, **values: Any) -> Any:
        return function(location=LocationOptions(on=on, namespace=namespace, context=context), **values)

    for option in (
        click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one."),
        click.option("--namespace", "-n", metavar="NAME", help="Namespace. Default: that of the context."),
        on_option("Where the job is. Default: this machine; else the cluster, if it is there."),
    ):
        with_location = option(with_location)
    return with_location
