"""`elasticdl features`: analyze a data set, detect drift, show statistics."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli.command import Command
from elasticdl.cli.screens import progress_bars
from elasticdl.reporting import prepare_figures

if TYPE_CHECKING:
    from elasticdl.features.analysis import AnalysisSource
    from elasticdl.features.statistics import Statistics

ANALYZE_EXAMPLES = """
elasticdl features analyze clicks.csv --label label -o features.yaml
elasticdl features analyze 'data/day=*/' --label click --sample 0.01 -o features.yaml
elasticdl features analyze train.tsv.xz --columns label,I1..I13,C1..C26 --label label -o features.yaml
elasticdl features analyze 'postgresql://reader@db/shop?table=clicks' --label click -o features.yaml
"""
DRIFT_EXAMPLES = """
elasticdl features drift new.csv --statistics statistics.json
elasticdl features drift 'duckdb:///clicks.db?table=today' --statistics statistics.json --rows 0
"""
SHOW_EXAMPLES = """
elasticdl features show statistics.json
"""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to read DATA: the options of all verbs that do."""

    columns: str | None
    delimiter: str | None
    memory: str
    temp: Path | None
    separator: str
    quiet: bool

    def make_source(self, data: str) -> AnalysisSource:
        from elasticdl.features.analysis import AnalysisSource

        delimiter = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        if delimiter is not None and len(delimiter) != 1:
            raise click.UsageError(f"--delimiter: expected one letter or tab, received {self.delimiter!r}")
        names = tuple(name.strip() for name in self.columns.split(",")) if self.columns else ()
        return AnalysisSource(data, names, delimiter, self.memory, self.temp, os.environ)


@click.group("features")
def command() -> None:
    """Analyze columns of data, propose transforms, and detect drift."""


def _source_options(function: Callable[..., object]) -> Callable[..., object]:
    """Adds the options of `SourceOptions`, which the function receives together as `source`."""

    @functools.wraps(function)
    def with_source(**values: Any) -> object:
        source = SourceOptions(**{field.name: values.pop(field.name) for field in fields(SourceOptions)})
        return function(source=source, **values)

    for option in reversed(
        [
            click.option(
                "--columns", metavar="NAMES", help="Names of a file's columns, separated by commas; I1..I13 is a range."
            ),
            click.option("--delimiter", metavar="CHAR", help="Delimiter of a file: one character, or tab."),
            click.option(
                "--memory",
                default="512MB",
                show_default=True,
                help="Memory limit of DuckDB; beyond it, data goes to disk. Values of CSV files get a sixteenth.",
            ),
            click.option(
                "--temp",
                type=click.Path(path_type=Path, file_okay=False),
                metavar="DIR",
                help="Directory for temporary files. Default: the system's.",
            ),
            click.option("--separator", default="|", show_default=True, help="Separator of sequences in text."),
            click.option("--quiet", is_flag=True, help="Show no progress bar."),
        ]
    ):
        with_source = option(with_source)
    return with_source


@command.command("analyze", cls=Command, examples=ANALYZE_EXAMPLES)
@click.argument("data")
@click.option("--label", required=True, metavar="COLUMN", help="The column to predict, 0 or 1.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("features.yaml"), show_default=True, metavar="YAML"
)
@click.option("--replace", is_flag=True, help="Replace the files if they are there.")
@click.option(
    "--sample", type=click.FloatRange(0, 1, min_open=True), default=1.0, help="Fraction of the rows to look at."
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the sample.")
@click.option(
    "--min-count", type=click.IntRange(1), default=2, show_default=True, help="Leave out values that occur less often."
)
@click.option(
    "--max-values", type=click.IntRange(1), default=100_000, show_default=True, help="Most values of a vocabulary."
)
@_source_options
def analyze(
    data: str,
    label: str,
    output: Path,
    replace: bool,
    source: SourceOptions,
    **limits: Any,
) -> None:
    """Write statistics of every column of DATA, a figure, and a features.yaml that proposes transforms with reasons.

    DATA is a file, folder or glob (CSV, TSV, Parquet; .gz, .xz, .bz2), or a table of DuckDB, PostgreSQL or MaxCompute.
    Statistics (JSON) and an overview (PNG) are written beside the YAML file.
    """
    from elasticdl.features import features_file, proposal
    from elasticdl.features.analysis import analyze as analyzed
    from elasticdl.features.sql.interface import AnalysisOptions

    prepare_figures("elasticdl features analyze", extra="features")
    statistics_path, figure_path = _companion_paths(output)
    _check_output_paths((output, statistics_path, figure_path), replace)
    options = AnalysisOptions(separator=source.separator, **limits)
    with progress_bars.analysis_progress(source.quiet) as progress:
        statistics = analyzed(source.make_source(data), options, label, progress)
    text = features_file.render_features_file(statistics, proposal.propose_transforms(statistics), statistics_path.name)
    # All or none: Ctrl-C here leaves the earlier files.
    with tempfile.TemporaryDirectory(prefix=".features-", dir=output.absolute().parent) as staging:
        statistics.save(Path(staging) / statistics_path.name)
        _draw_statistics(statistics, Path(staging) / figure_path.name)
        (Path(staging) / output.name).write_text(text, encoding="utf-8")
        # The YAML last: the files it names are there by then.
        for path in (figure_path, statistics_path, output):
            (Path(staging) / path.name).replace(path)
    _print_statistics(statistics)
    for path in (output, statistics_path, figure_path):
        click.echo(f"wrote {path}")


@command.command("drift", cls=Command, examples=DRIFT_EXAMPLES)
@click.argument("data")
@click.option(
    "--statistics",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="JSON",
    help="Statistics of the earlier data.",
)
@click.option(
    "--rows",
    type=click.IntRange(0),
    default=100_000,
    show_default=True,
    help="Use only the first N rows. 0: all rows.",
)
@_source_options
def drift(
    data: str,
    path: Path,
    rows: int,
    source: SourceOptions,
) -> None:
    """Compare DATA with statistics of earlier data: columns, kinds, missing values, distributions, vocabularies.

    The exit code is 1 if something has drifted.
    """
    from elasticdl.features import drift as drifting
    from elasticdl.features.analysis import analyze as analyzed
    from elasticdl.features.sql.interface import AnalysisOptions
    from elasticdl.features.statistics import Statistics

    before = Statistics.load(path)
    options = AnalysisOptions(min_count=1, separator=source.separator, max_rows=rows or None)
    with progress_bars.analysis_progress(source.quiet) as progress:
        now = analyzed(source.make_source(data), options, None, progress)
    findings = drifting.find_drift(before, now)
    for finding in findings:
        mark = click.style("drifted", fg="red") if finding.is_severe else click.style("note", fg="yellow")
        click.echo(f"{mark}  {finding}")
    drifted_count = sum(finding.is_severe for finding in findings)
    click.echo(f"{now.rows:,} rows of {now.source} against {before.rows:,} of {before.source}: {drifted_count} drifted")
    if drifted_count:
        sys.exit(1)


@command.command("show", cls=Command, examples=SHOW_EXAMPLES)
@click.argument("path", type=click.Path(path_type=Path), metavar="JSON")
def show(path: Path) -> None:
    """Print the table of statistics that `analyze` wrote."""
    from elasticdl.features.statistics import Statistics

    _print_statistics(Statistics.load(path))


def _companion_paths(output: Path) -> tuple[Path, Path]:
    """Returns the paths of the statistics and of the figure. Those of features.yaml have the plain names."""
    name = "statistics.json" if output.stem == "features" else f"{output.stem}.statistics.json"
    return output.with_name(name), output.with_suffix(".png")


def _check_output_paths(paths: tuple[Path, ...], may_replace: bool) -> None:
    parent = paths[0].absolute().parent
    if not parent.is_dir():
        raise click.UsageError(f"--output: no directory {parent}")
    if paths[0].suffix not in (".yaml", ".yml"):
        raise click.UsageError(f"--output: expected the name of a YAML file, received {paths[0]}")
    existing = [str(path) for path in paths if path.exists()]
    if existing and not may_replace:
        raise click.UsageError(f"{', '.join(existing)}: exists already; give --replace, or another name with -o")


def _print_statistics(statistics: Statistics) -> None:
    from rich.console import Console

    from elasticdl.cli.screens import statistics_table

    console = Console() if sys.stdout.isatty() else Console(width=220)
    console.print(statistics_table.statistics_table(statistics))


def _draw_statistics(statistics: Statistics, path: Path) -> None:
    from elasticdl.features import statistics_figure

    statistics_figure.draw_statistics(statistics, path)
