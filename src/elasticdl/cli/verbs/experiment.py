"""`elasticdl experiment`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from elasticdl.cli.command import Command, current_command_line
from elasticdl.reporting import prepare_figures

EXAMPLES = """
elasticdl experiment two-jobs
elasticdl experiment mixed --output results
elasticdl experiment two-jobs --real
elasticdl experiment convergence --data train.txt
elasticdl experiment convergence --quick
"""

TWO_JOBS, MIXED, CONVERGENCE = "two-jobs", "mixed", "convergence"


@click.command("experiment", cls=Command, examples=EXAMPLES)
@click.argument("name", type=click.Choice((TWO_JOBS, MIXED, CONVERGENCE)))
@click.option(
    "--real",
    is_flag=True,
    help="Run real processes on this machine, scaled down; takes minutes. Default: simulate.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="DIR",
    help="Directory for NAME.png and NAME.json. Default: here.",
)
@click.option(
    "--data",
    metavar="FILE",
    help="convergence: Criteo's train.txt (tab separated, no header; also .xz), or `made-up` for synthetic clicks.",
)
@click.option(
    "--workers",
    metavar="LOW,HIGH",
    help="convergence: workers of the fixed runs, LOW and HIGH, and limits of the elastic ones. Default: 4,8.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), metavar="N", help="convergence: number of runs of each kind. Default: 3."
)
@click.option(
    "--quick", is_flag=True, help="convergence: fewer synthetic clicks, --workers 2,4 and --seeds 2; takes minutes."
)
def command(
    name: str, real: bool, output: Path, data: str | None, workers: str | None, seeds: int | None, quick: bool
) -> None:
    """Repeat an experiment of the original ElasticDL, with gang and elastic scheduling, and compare with its claims.

    two-jobs: two jobs that do not fit at once, the second some time after the first. mixed: training beside a service
    of greater priority with a varying load. convergence: Wide & Deep on a click log with asynchronous ps, where workers
    that come, go and are killed should change the AUC no more than another seed does; always with real processes.
    """
    prepare_figures("elasticdl experiment")
    if name == CONVERGENCE:
        if real:
            raise click.UsageError("--real: convergence runs real processes anyway; leave it out")
        from elasticdl.cli.screens import experiment_table
        from elasticdl.cli.screens.progress_bars import TerminalReporter
        from elasticdl.experiments.convergence import experiment

        target = experiment.ExperimentOutput(
            output, current_command_line(), TerminalReporter(), experiment_table.print_convergence
        )
        experiment.run_experiment(data, workers, seeds, quick=quick, output=target)
        return
    if data is not None or workers is not None or seeds is not None or quick:
        raise click.UsageError("--data, --workers, --seeds and --quick are for `elasticdl experiment convergence`")
    output.mkdir(parents=True, exist_ok=True)
    _run_policies(name, output / (f"{name}-real" if real else name), real=real)


def _run_policies(name: str, stem: Path, *, real: bool) -> None:
    from elasticdl.cli.screens import experiment_table
    from elasticdl.experiments import figures
    from elasticdl.experiments import results as tables

    if real:
        from elasticdl.experiments import real_jobs

        results = real_jobs.run_experiment(name, click.echo)
    else:
        from elasticdl.experiments import simulation

        results = list(simulation.simulate_all_policies(name))
    summaries = {result.policy: tables.summarize(name, result) for result in results}
    experiment_table.print_policies(summaries, tables.original_claim(name))
    notes = [", ".join(f"{title} {text}" for title, text in summary.items()) for summary in summaries.values()]
    figures.draw_experiment(name, results, notes, real, stem.with_suffix(".png"))
    document = {
        "command": current_command_line(),
        "claim": tables.original_claim(name),
        "courses": [result.to_document() for result in results],
    }
    stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    click.echo(f"{stem}.png and .json")
