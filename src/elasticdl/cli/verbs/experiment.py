"""`elasticdl experiment`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli.command import Command, current_command_line

if TYPE_CHECKING:
    from elasticdl.experiments.results import ExperimentResult

EXAMPLES = """
elasticdl experiment two-jobs
elasticdl experiment mixed --output results
elasticdl experiment two-jobs --real
elasticdl experiment convergence --data train.txt
elasticdl experiment convergence --quick
"""

TWO_JOBS, MIXED, CONVERGENCE = "two-jobs", "mixed", "convergence"
TENTHS_BELOW_S = 10.0  # below it tenths of a second are shown


@click.command("experiment", cls=Command, examples=EXAMPLES)
@click.argument("name", type=click.Choice((TWO_JOBS, MIXED, CONVERGENCE)))
@click.option(
    "--real",
    is_flag=True,
    help="Scaled down, with real processes on this machine and its scheduler; takes minutes. Default: simulated.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="DIR",
    help="Where NAME.png and NAME.json go. Default: here.",
)
@click.option(
    "--data",
    metavar="FILE",
    help="convergence: Criteo's train.txt (tab separated, no header; also .xz), or `made-up`.",
)
@click.option("--workers", metavar="LOW,HIGH", help="convergence: fixed at LOW, at HIGH, and elastic. Default: 4,8.")
@click.option("--seeds", type=click.IntRange(min=1), metavar="N", help="convergence: runs of each. Default: 3.")
@click.option("--quick", is_flag=True, help="convergence: few made-up clicks, 2,4 workers and 2 seeds; some minutes.")
def command(
    name: str, real: bool, output: Path, data: str | None, workers: str | None, seeds: int | None, quick: bool
) -> None:
    """Repeat an experiment of the original ElasticDL, in gangs and elastic, beside what it claims.

    two-jobs: two jobs that do not fit at once, the second some time after the first. mixed: training below a service of
    greater priority whose load goes up and down. convergence: Wide & Deep on a click log with asynchronous ps; workers
    that come, go and are killed change the AUC no more than another seed does. It always runs real processes.
    """
    if name == CONVERGENCE:
        if real:
            raise click.UsageError("--real: convergence runs real processes anyway; leave it out")
        from elasticdl.experiments.convergence import experiment

        experiment.run_experiment(data, workers, seeds, quick=quick, output=output)
        return
    if data is not None or workers is not None or seeds is not None or quick:
        raise click.UsageError("--data, --workers, --seeds and --quick are of `elasticdl experiment convergence`")
    output.mkdir(parents=True, exist_ok=True)
    if real:
        from elasticdl.experiments import real_jobs

        courses = real_jobs.run_experiment(name, click.echo)
    else:
        from elasticdl.experiments import simulation

        courses = list(simulation.simulate_all_policies(name))
    stem = f"{name}-real" if real else name
    print_and_draw(name, courses, real, output / f"{stem}.png")
    document = {
        "command": current_command_line(),
        "claim": _original_claim(name),
        "courses": [one.to_document() for one in courses],
    }
    (output / f"{stem}.json").write_text(json.dumps(document, indent=1) + "\n")
    click.echo(f"{output / stem}.png and .json")


def print_and_draw(name: str, courses: Sequence[ExperimentResult], real: bool, path: Path) -> None:
    """The table, and the picture."""
    from rich.console import Console
    from rich.table import Table

    rows = [_two_jobs_row(one) if name == TWO_JOBS else _mixed_row(one) for one in courses]
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("policy")
    for title in rows[0]:
        table.add_column(title, justify="right")
    for one, row in zip(courses, rows, strict=True):
        table.add_row(one.policy, *row.values())
    console = Console()
    console.print(table)
    console.print(_original_claim(name), markup=False, highlight=False, soft_wrap=True)
    _draw_figure(name, courses, [", ".join(f"{key} {value}" for key, value in row.items()) for row in rows], real, path)


def _two_jobs_row(one: ExperimentResult) -> dict[str, str]:
    first, second = one.runs["first"], one.runs["second"]
    return {
        "first ends": _format_seconds(first.ended_at),
        "second waits": _format_seconds(second.waited_s),
        "second runs after": _format_seconds(second.start_delay_s),
        "both end": _format_seconds(one.end_s),
        "in use": f"{one.utilization:.0%}",
    }


def _mixed_row(one: ExperimentResult) -> dict[str, str]:
    service = [run for name, run in one.runs.items() if _is_service(name)]
    trained = sum((e - s) * n for name, run in one.runs.items() if not _is_service(name) for s, e, n in run.spans)
    served = one.utilization - trained / (one.devices * one.end_s)
    return {
        "in use": f"{one.utilization:.1%}",
        "by the service": f"{served:.1%}",
        "service waits at most": _format_longest(run.waited_s for run in service),
        "runs after at most": _format_longest(run.start_delay_s for run in service),
    }


def _draw_figure(name: str, courses: Sequence[ExperimentResult], notes: Sequence[str], real: bool, path: Path) -> None:
    from elasticdl.experiments import figures, simulation

    claims: dict[str, tuple[float, str]] = {}
    groups: list[Any] = []
    where = "real processes on one machine, scaled down" if real else "simulated, 320 CPUs"
    if name == TWO_JOBS:
        groups = [{"first job": ["first"], "second job": ["second"]} for _ in courses]
        for one in courses if not real else ():
            at = simulation.CLAIMED_END_S.get(one.policy, simulation.CLAIMED_ELASTIC_END_S)
            claims[one.policy] = at, f"the original: {at:.0f} s"
        title = f"Two jobs that do not fit at once ({where})"
    else:
        for one in courses:
            service = [job for job in one.runs if _is_service(job)]
            groups.append({"service": service, "training": [job for job in one.runs if job not in service]})
        title = f"Training below an online service ({where})"
    level = simulation.CLAIMED_UTILIZATION if name == MIXED else None
    figures.draw_policies(path, title, courses, groups, notes, claims, level)


def _original_claim(name: str) -> str:
    if name == TWO_JOBS:
        return (
            "the original, on 320 CPUs: in gangs the first job ends at 650 s and both at 1300 s, the second waits; "
            "elastic, both end at 1100 s and hardly anybody waits"
        )
    return "the original: more than 90 % of the cluster in use, and the service never waits"


def _is_service(name: str) -> bool:
    return name.startswith("service")


def _format_seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s" if value < TENTHS_BELOW_S else f"{value:.0f} s"


def _format_longest(values: Iterable[float | None]) -> str:
    longest = max(math.inf if value is None else value for value in values)
    return "for ever" if math.isinf(longest) else _format_seconds(longest)
