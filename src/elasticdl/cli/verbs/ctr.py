"""`elasticdl ctr`: click-through-rate models from a config alone."""

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
    """Train click-through-rate models from a config alone: ctr.yaml."""


@command.command("init", cls=Command, examples=INIT_EXAMPLES)
@click.argument("data")
@click.option("--label", default="label", show_default=True, help="The column to predict: 0 or 1.")
@click.option("--model", default="deepfm", show_default=True, metavar="NAME", help="One of `elasticdl zoo list`.")
@click.option(
    "--columns",
    default="",
    metavar="NAMES",
    help="Names of the columns of a file without a header; I1..I13 is a range.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("ctr.yaml"), show_default=True, metavar="FILE"
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
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
        raise SpecError(f"{output} exists already; choose another with -o, or give --force")
    written = config.render_template(data, label, model, named, output.name, f"{output.stem}-ctr")
    output.write_text(written, encoding="utf-8")
    click.echo(f"{output}: train it with `elasticdl train {output}`, or change it first")


@command.command("build", cls=Command, examples=BUILD_EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
def build(file: Path) -> None:
    """Build the directory of a config without training: statistics, features.yaml, preprocessor and model file."""
    check_module("elasticdl ctr", "pyarrow", extra="features")
    from elasticdl.cli.screens.progress_bars import TerminalReporter
    from elasticdl.ctr import config_job

    config_job.build_config(file, TerminalReporter())


@command.command("report", cls=Command, examples=REPORT_EXAMPLES)
@click.argument("job_or_file")
@click.option(
    "--rows", type=click.IntRange(1), default=10_000, show_default=True, metavar="N",
    help="Most rows whose columns are permuted.",
)  # fmt: skip
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="N",
    help="Number of permutations of each column.",
)
@click.option(
    "-o", "--output", metavar="DIR", help="A directory, or a URL of an object store. Default: report beside the config."
)
def report(job_or_file: str, rows: int, repeats: int, output: str | None) -> None:
    """Write a page about a trained model: its quality on test rows, its training, the importance of its columns.

    JOB_OR_FILE is the name of a job or a ctr.yaml. The page, index.html, is self-contained; its figures are also
    written as PNGs, its numbers as measurement.json. `elasticdl train ctr.yaml` writes it at the end.
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
    help="Number of trials, including those of earlier runs of this search.",
)  # fmt: skip
@click.option(
    "--parallel", type=click.IntRange(min=1), metavar="N",
    help="Trials that run at the same time. Default: 1; 4 if `elasticdl scheduler` serves this machine.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="Stop after this time, as by Ctrl-C. Default: when all trials are over.",
)  # fmt: skip
@click.option(
    "--pruner", type=click.Choice(("median", "hyperband", "none")), default="median", show_default=True,
    help="Which trials are stopped early: those worse than the median at the same evaluation, or by halving.",
)  # fmt: skip
@click.option(
    "--startup", type=click.IntRange(min=1), default=5, show_default=True, metavar="N",
    help="Complete trials before the median pruner stops any.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the search.")
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
    """Search for good parameters of a config: many trials, each an ordinary job, the bad ones stopped early.

    The search space is the key `search` of CTR.yaml, for example learning_rate: log(1e-4, 1e-2). Trials are compared by
    the logloss of the validation rows. If `elasticdl scheduler` serves this machine, they are queued with low priority.
    Ctrl-C stops running trials; the same command resumes them. The best is written to NAME-ctr/search/best.yaml.
    """
    check_module("elasticdl ctr", "pyarrow", extra="features")
    from elasticdl.cli.screens.progress_bars import TerminalReporter
    from elasticdl.cli.screens.search_table import SearchScreen
    from elasticdl.ctr.search import session
    from elasticdl.ctr.search.study import SearchOptions

    request = session.SearchRequest(trials, parallel, timeout, job_name, SearchOptions(pruner, startup, seed))
    return session.run_search(file, request, SearchScreen.open, TerminalReporter())
