"""The convergence experiment of the original: Wide & Deep on a click log with fixed and with elastic workers."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from elasticdl.cli.command import current_command_line
from elasticdl.errors import SpecError
from elasticdl.experiments.convergence.judgment import (
    ORIGINAL_CLAIM,
    ConvergenceRun,
    Spread,
    group_runs,
    judge_elastic_runs,
    summarize_best_aucs,
)
from elasticdl.experiments.convergence.training_run import RunPlan, run_job

MADE_UP = "made-up"
COLUMNS = "label,I1..I13,C1..C26"
NAME, MODEL = "convergence", "wide_deep"
# Fixed, whatever would be proposed: ids of all columns, and logarithms of the counts. I10 has few values.
FEATURES = {
    "I*": ["normalize(log=true)", "log_square()"],
    "I10": "lookup(min_count=2)",
    "C*": "lookup(min_count=2, most=100000)",
}
ROWS_PER_WRITE = 10_000  # made-up rows that are written at a time


@dataclass(frozen=True, slots=True)
class ConvergenceSettings:
    """How much is trained, and by how many."""

    min_workers: int
    max_workers: int
    seeds: int
    synthetic_rows: int  # of made-up data
    batch_size: int
    epochs: int
    evaluations_per_epoch: int  # an epoch
    max_changes: int  # of workers while an elastic one trains, at most


FULL_SETTINGS = ConvergenceSettings(
    4, 8, 3, synthetic_rows=200_000, batch_size=128, epochs=2, evaluations_per_epoch=8, max_changes=12
)
QUICK_SETTINGS = ConvergenceSettings(
    2, 4, 2, synthetic_rows=24_000, batch_size=64, epochs=2, evaluations_per_epoch=4, max_changes=8
)


def choose_settings(workers: str | None, seeds: int | None, *, quick: bool) -> ConvergenceSettings:
    chosen = QUICK_SETTINGS if quick else FULL_SETTINGS
    if workers is not None:
        low, high = _parse_worker_range(workers)
        chosen = replace(chosen, min_workers=low, max_workers=high)
    return replace(chosen, seeds=seeds) if seeds is not None else chosen


def _parse_worker_range(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) == 2 and all(part.strip().isdigit() for part in parts):
        low, high = int(parts[0]), int(parts[1])
        if 1 <= low < high:
            return low, high
    raise SpecError(f"--workers: expected the fewest and the most, e.g. 4,8; received {text!r}")


def plan_runs(chosen: ConvergenceSettings) -> list[RunPlan]:
    """Seed by seed, so that an experiment that is cut short has something of all groups."""
    low, high = chosen.min_workers, chosen.max_workers
    kinds = ((f"fixed {low}", low, low), (f"fixed {high}", high, high), (f"elastic {low}-{high}", low, high))
    return [RunPlan(group, fewest, most, seed) for seed in range(chosen.seeds) for group, fewest, most in kinds]


def resolve_data(given: str | None, *, quick: bool) -> str:
    """The file, or MADE_UP; SpecError with the fix where there is none."""
    if given == MADE_UP or (given is None and quick):
        return MADE_UP
    if given is None:
        raise SpecError(
            "convergence: which click log? Give --data FILE, train.txt of Criteo's display advertising challenge "
            f"(tab separated, no header, also as .xz or .gz), or --data {MADE_UP} for made-up clicks"
        )
    if "://" not in given and not Path(given).is_file():
        raise SpecError(f"--data: no file {given}; --data {MADE_UP} does without one")
    return given if "://" in given else str(Path(given).absolute())


def config_document(data: str, chosen: ConvergenceSettings) -> dict[str, Any]:
    """The ctr.yaml of all runs; seed and workers are options of each."""
    return {
        "data": data,
        "columns": COLUMNS,
        "delimiter": "\t",
        "label": "label",
        "features": FEATURES,
        "min_count": 2,
        "model": {MODEL: {"columns": 10, "hidden": [128, 64], "dropout": 0.2}},
        "training": {
            "learning_rate": 0.00025,
            "epochs": chosen.epochs,
            "batch_size": chosen.batch_size,
            "evaluations": chosen.evaluations_per_epoch,
        },
        "workers": [chosen.min_workers, chosen.max_workers],
        "report": False,
        "job": {"ps": {"mode": "async"}, "checkpoint": {"steps": 0}, "workers": {"threads": 1}},
    }


def write_synthetic_clicks(path: Path, rows: int) -> None:
    """Clicks of the zoo's generator in the form of the challenge's files."""
    import numpy as np

    from elasticdl.zoo.ctr import data

    with path.open("w", encoding="ascii") as file:
        for start in range(0, rows, ROWS_PER_WRITE):
            found, _ = data.make_records(np.arange(start, min(start + ROWS_PER_WRITE, rows)))
            for one in found:
                numbers = "\t".join(f"{value:.4f}" for value in one["numbers"])
                ids = "\t".join(f"{value:x}" for value in one["ids"])
                file.write(f"{int(one['label'])}\t{numbers}\t{ids}\n")


def remove_callbacks(model: Path) -> None:
    """All runs see all of the data at one learning rate: none ends early or slows down by what it measured itself."""
    text = model.read_text(encoding="utf-8")
    changed = text.replace("return _JOB.callbacks()", "return []")
    assert changed != text
    model.write_text(changed, encoding="utf-8")


def run_experiment(given: str | None, workers: str | None, seeds: int | None, *, quick: bool, output: Path) -> None:
    """Nine runs, a table, a picture and the numbers. What there is when it is ended early is shown and written, too."""
    chosen = choose_settings(workers, seeds, quick=quick)
    data = resolve_data(given, quick=quick)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    output.mkdir(parents=True, exist_ok=True)
    command, all_of = current_command_line(), plan_runs(chosen)
    found: list[ConvergenceRun] = []
    try:
        with tempfile.TemporaryDirectory(prefix="elasticdl-experiment-", ignore_cleanup_errors=True) as root:
            for one in _run_plans(all_of, data, chosen, Path(root)):
                found.append(one)
    finally:
        if found:
            _write_results(found, len(all_of), data, chosen, command, output)


def _run_plans(
    all_of: Sequence[RunPlan], data: str, chosen: ConvergenceSettings, root: Path
) -> Iterator[ConvergenceRun]:
    import yaml
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from elasticdl.ctr import config_job

    if data == MADE_UP:
        data = str(root / "clicks.tsv")
        write_synthetic_clicks(Path(data), chosen.synthetic_rows)
    config = root / f"{NAME}.yaml"
    config.write_text(yaml.safe_dump(config_document(data, chosen)), encoding="utf-8")
    _, built = config_job.build_config(config)
    remove_callbacks(built.directory / f"{MODEL}.py")
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[what]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("runs", total=len(all_of), what="")
        for number, plan in enumerate(all_of):

            def tell(done: float, what: str, before: int = number) -> None:
                shown.update(task, completed=before + done, what=what)

            one = run_job(plan, config, root, chosen.max_changes, tell)
            click.echo(
                f"{plan.name}: best AUC {one.best_auc:.4f} in {one.updates:,} updates, {one.seconds:.0f} s; "
                f"{one.max_workers} workers at most, {one.joined} joined, {one.lost} lost"
            )
            yield one


def _write_results(
    found: Sequence[ConvergenceRun], planned: int, data: str, chosen: ConvergenceSettings, command: str, output: Path
) -> None:
    from elasticdl.experiments import figures

    said = judge_elastic_runs(found)
    where = "made-up clicks" if data == MADE_UP else Path(data).name
    title = f"Wide & Deep, asynchronous ps, {where}: {len(found)} of {planned} runs"
    notes = [f"{key}: {_format_value(said[key])}" for key in _FIGURE_NOTES if key in said]
    _print_table(found, said)
    figures.draw_convergence(output / f"{NAME}.png", title, found, ["; ".join(notes)] if notes else [])
    written = {
        "command": command,
        "claim": ORIGINAL_CLAIM,
        "data": where,
        "runs planned": planned,
        "batch": chosen.batch_size,
        "epochs": chosen.epochs,
        "best AUC": summarize_best_aucs(found),
        "elastic inside the spread": said,
        "runs": [one.to_document() for one in found],
    }
    (output / f"{NAME}.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    click.echo(f"{output / NAME}.png and .json")


_FIGURE_NOTES = (
    "every elastic curve inside the spread",
    "every elastic curve within two standard deviations",
    "elastic best AUCs inside",
)


def _print_table(found: Sequence[ConvergenceRun], said: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("workers", "runs", "best AUC, mean", "least", "most", "last AUC, mean", "seconds", "joined", "lost"):
        table.add_column(title, justify="left" if title == "workers" else "right")
    for name, runs in group_runs(found).items():
        best, last = (
            Spread.from_values([one.best_auc for one in runs]),
            Spread.from_values([one.last_auc for one in runs]),
        )
        seconds = Spread.from_values([one.seconds for one in runs]).mean
        counts = (sum(one.joined for one in runs), sum(one.lost for one in runs))
        numbers = (
            f"{best.mean:.4f}",
            f"{best.minimum:.4f}",
            f"{best.maximum:.4f}",
            f"{last.mean:.4f}",
            f"{seconds:.0f}",
        )
        table.add_row(name, str(len(runs)), *numbers, *map(str, counts))
    console = Console()
    console.print(table)
    for key, value in said.items():
        console.print(f"{key}: {_format_value(value)}", markup=False, highlight=False, soft_wrap=True)
    console.print(ORIGINAL_CLAIM, markup=False, highlight=False, soft_wrap=True)


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
