"""`elasticdl ctr`: click models from a config alone."""

from __future__ import annotations

from pathlib import Path

import click

from elasticdl.cli.command import Command, current_command_line
from elasticdl.errors import SpecError
from elasticdl.extras import check_module
from elasticdl.storage import probe
from elasticdl.storage.paths import StorePath, list_files, parse_path

INIT_EXAMPLES = """
elasticdl ctr init clicks.csv --label clicked
elasticdl ctr init clicks.csv --label clicked --model dcn_v2
elasticdl ctr init train.txt --columns label,I1..I13,C1..C26 -o criteo.yaml
"""
BUILD_EXAMPLES = """
elasticdl ctr build ctr.yaml
"""
REPORT_EXAMPLES = """
elasticdl ctr report ctr.yaml
elasticdl ctr report clicks-20261115-1307-x3 --rows 50000 --repeats 5
"""
SEARCH_EXAMPLES = """
elasticdl ctr search ctr.yaml --trials 20
elasticdl ctr search ctr.yaml --trials 50 --parallel 4 --timeout 3600 --pruner hyperband
elasticdl train ctr-ctr/search/best.yaml
"""


@click.group("ctr")
def command() -> None:
    """Train models of clicks from a config alone: ctr.yaml."""


@command.command("init", cls=Command, examples=INIT_EXAMPLES)
@click.argument("data")
@click.option("--label", default="label", show_default=True, help="The column to predict: 0 or 1.")
@click.option("--model", default="deepfm", show_default=True, metavar="NAME", help="One of `elasticdl zoo list`.")
@click.option("--columns", default="", metavar="NAMES", help="Names, for files without a header; ranges as I1..I13.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("ctr.yaml"), show_default=True, metavar="FILE"
)
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def init(data: str, label: str, model: str, columns: str, output: Path, force: bool) -> None:
    """Write a ctr.yaml for DATA with all its options explained. Then: elasticdl train ctr.yaml"""
    check_module("elasticdl ctr", "pyarrow", extra="features")
    from elasticdl.ctr import build, config
    from elasticdl.features.analysis import AnalysisSource, open_engine
    from elasticdl.features.sql.input_files import expand_column_names

    build.check_model(model, "--model")
    named = [name.strip() for name in columns.split(",")] if columns else []
    with open_engine(AnalysisSource(data, expand_column_names(named))) as engine:
        names = [column.name for column in engine.columns()]
    if label not in names:
        from elasticdl.spelling import did_you_mean

        raise SpecError(
            f"{data}: no column {label!r} for the label{did_you_mean(label, names, f'; there are {names[:8]}')}"
        )
    if output.exists() and not force:
        raise SpecError(f"{output} is there already; choose another with -o, or --force")
    written = config.render_template(data, label, model, named, output.name, f"{output.stem}-ctr")
    output.write_text(written, encoding="utf-8")
    click.echo(f"{output}: train it with `elasticdl train {output}`, or change it first")


@command.command("build", cls=Command, examples=BUILD_EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
def build(file: Path) -> None:
    """Make what a config means without training it: statistics, features.yaml, the front and a model file."""
    check_module("elasticdl ctr", "pyarrow", extra="features")
    from elasticdl.cli.screens.progress_bars import TerminalReporter
    from elasticdl.ctr import config_job

    config_job.build_config(file, TerminalReporter())


@command.command("report", cls=Command, examples=REPORT_EXAMPLES)
@click.argument("job_or_file")
@click.option(
    "--rows", type=click.IntRange(1), default=10_000, show_default=True, metavar="N",
    help="At most so many rows whose columns are permuted.",
)  # fmt: skip
@click.option(
    "--repeats", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Permutations of each column."
)
@click.option(
    "-o", "--output", metavar="DIR", help="A directory, or a URL of an object store. Default: report beside the config."
)
def report(job_or_file: str, rows: int, repeats: int, output: str | None) -> None:
    """Write a page on a trained model: how good it is on test rows, how it got there, what its columns are worth.

    JOB_OR_FILE is a job's name or a ctr.yaml. The page, index.html, needs nothing else to be read; its pictures lie
    beside it as PNGs, its numbers as measurement.json. `elasticdl train ctr.yaml` makes it by itself at the end.
    """
    from elasticdl.cli.screens import progress_bars
    from elasticdl.ctr.report import generation, subjects

    target_path = parse_path(output) if output else None
    if isinstance(target_path, StorePath):
        probe.check_writable(target_path, "--output")
    subject = subjects.find_subject(job_or_file)
    with progress_bars.analysis_progress() as progress:
        target = target_path if isinstance(target_path, Path) else subject.directory / generation.REPORT_DIRECTORY
        path = generation.generate_report(subject, target, rows, repeats, current_command_line(), progress)
    if isinstance(target_path, StorePath):
        for name in sorted(list_files(target), key=lambda name: name == path.name):  # the page last
            (target_path / name).upload(target / name)
    click.echo(target_path / path.name if isinstance(target_path, StorePath) else path)


@command.command("search", cls=Command, examples=SEARCH_EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path), metavar="CTR.yaml")
@click.option(
    "--trials", type=click.IntRange(min=1), default=20, show_default=True, metavar="N",
    help="Trials in all, with those of earlier runs of this search.",
)  # fmt: skip
@click.option(
    "--parallel", type=click.IntRange(min=1), metavar="N",
    help="Trials at a time. Default: 1; 4 where `elasticdl scheduler` serves this machine.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="End by then as by Ctrl-C. Default: when all trials are over.",
)  # fmt: skip
@click.option(
    "--pruner", type=click.Choice(("median", "hyperband", "none")), default="median", show_default=True,
    help="Which trials are given up early: those below the median at the same evaluation, or by halves.",
)  # fmt: skip
@click.option(
    "--startup", type=click.IntRange(min=1), default=5, show_default=True, metavar="N",
    help="Whole trials before the median pruner gives any up.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of what is tried.")
@click.option("--job_name", metavar="NAME", help="Trials are jobs NAME-trial-007. Default: the file's name.")
def search(
    file: Path,
    trials: int,
    parallel: int | None,
    timeout: float | None,
    pruner: str,
    startup: int,
    seed: int,
    job_name: str | None,
) -> int:
    """Search for good parameters of a config: many trials, each an ordinary job, the bad ones given up early.

    What may be chosen stands in CTR.yaml under `search`, e.g. learning_rate: log(1e-4, 1e-2). Trials are judged by the
    logloss of the validation rows. Where `elasticdl scheduler` serves this machine they are queued, with low priority.
    Ctrl-C stops running trials; the same command goes on with them. The best goes into NAME-ctr/search/best.yaml.
    """
    check_module("elasticdl ctr", "pyarrow", extra="features")
    from elasticdl.cli.screens.progress_bars import TerminalReporter
    from elasticdl.cli.screens.search_table import SearchScreen
    from elasticdl.ctr.search import session
    from elasticdl.ctr.search.study import SearchOptions

    request = session.SearchRequest(trials, parallel, timeout, job_name, SearchOptions(pruner, startup, seed))
    return session.run_search(file, request, SearchScreen.open, TerminalReporter())
