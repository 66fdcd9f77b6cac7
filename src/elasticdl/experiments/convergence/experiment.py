"""The convergence experiment of the original: Wide & Deep on a click log with fixed and with elastic workers."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elasticdl.errors import SpecError
from elasticdl.experiments.convergence.judgment import (
    ORIGINAL_CLAIM,
    ConvergenceRun,
    judge_elastic_runs,
    summarize_best_aucs,
)
from elasticdl.experiments.convergence.training_run import RunPlan, run_job
from elasticdl.jobs.interface import SubmissionReporter

MADE_UP = "made-up"
COLUMNS = "label,I1..I13,C1..C26"
NAME, MODEL = "convergence", "wide_deep"
# Fixed transforms instead of proposed ones: ids of all columns, logarithms of the counts. I10 has few values.
FEATURES = {
    "I*": ["normalizer(log=true)", "log_square()"],
    "I10": "index_lookup(min_count=2)",
    "C*": "index_lookup(min_count=2, max_size=100000)",
}
ROWS_PER_WRITE = 10_000  # synthetic rows written at a time


@dataclass(frozen=True, slots=True)
class ConvergenceSettings:
    """The amount of training and the numbers of workers."""

    min_workers: int
    max_workers: int
    seeds: int
    synthetic_rows: int
    batch_size: int
    epochs: int
    evaluations_per_epoch: int
    max_changes: int  # maximum number of changes of workers in an elastic run


FULL_SETTINGS = ConvergenceSettings(
    4, 8, 3, synthetic_rows=200_000, batch_size=128, epochs=2, evaluations_per_epoch=8, max_changes=12
)
QUICK_SETTINGS = ConvergenceSettings(
    2, 4, 2, synthetic_rows=24_000, batch_size=64, epochs=2, evaluations_per_epoch=4, max_changes=8
)


def choose_settings(workers: str | None, seeds: int | None, *, quick: bool) -> ConvergenceSettings:
    settings = QUICK_SETTINGS if quick else FULL_SETTINGS
    if workers is not None:
        low, high = _parse_worker_range(workers)
        settings = replace(settings, min_workers=low, max_workers=high)
    return replace(settings, seeds=seeds) if seeds is not None else settings


def _parse_worker_range(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) == 2 and all(part.strip().isdigit() for part in parts):
        low, high = int(parts[0]), int(parts[1])
        if 1 <= low < high:
            return low, high
    raise SpecError(f"--workers: expected the fewest and the most, e.g. 4,8; received {text!r}")


def plan_runs(settings: ConvergenceSettings) -> list[RunPlan]:
    """Plans all runs, ordered by seed, so that an experiment that ends early has runs of all groups."""
    low, high = settings.min_workers, settings.max_workers
    kinds = ((f"fixed {low}", low, low), (f"fixed {high}", high, high), (f"elastic {low}-{high}", low, high))
    return [RunPlan(group, fewest, high, seed) for seed in range(settings.seeds) for group, fewest, high in kinds]


def resolve_data(path: str | None, *, quick: bool) -> str:
    """Returns the path of the data, or MADE_UP. Raises SpecError, with the fix, if the file does not exist."""
    if path == MADE_UP or (path is None and quick):
        return MADE_UP
    if path is None:
        raise SpecError(
            "convergence: which click log? Give --data FILE, train.txt of Criteo's display advertising challenge "
            f"(tab separated, no header, also as .xz or .gz), or --data {MADE_UP} for made-up clicks"
        )
    if "://" not in path and not Path(path).is_file():
        raise SpecError(f"--data: no file {path}; --data {MADE_UP} does without one")
    return path if "://" in path else str(Path(path).absolute())


def config_document(data: str, settings: ConvergenceSettings) -> dict[str, Any]:
    """Returns the ctr.yaml of all runs; each run sets its seed and workers by options."""
    return {
        "data": data,
        "columns": COLUMNS,
        "delimiter": "\t",
        "label": "label",
        "features": FEATURES,
        "min_count": 2,
        "model": {MODEL: {"embedding_dim": 10, "hidden_units": [128, 64], "dropout": 0.2}},
        "training": {
            "learning_rate": 0.00025,
            "epochs": settings.epochs,
            "batch_size": settings.batch_size,
            "evaluations": settings.evaluations_per_epoch,
            "patience": 0,  # all runs train on all of the data at a constant learning rate
        },
        "workers": {"min": settings.min_workers, "max": settings.max_workers},
        "report": False,
        "job": {"ps": {"mode": "async"}, "checkpoint": {"every_steps": 0}, "workers": {"threads": 1}},
    }


def write_synthetic_clicks(path: Path, rows: int) -> None:
    """Writes clicks of the zoo's generator in the format of the challenge's files."""
    import numpy as np

    from elasticdl.zoo.ctr import data

    with path.open("w", encoding="ascii") as file:
        for start in range(0, rows, ROWS_PER_WRITE):
            records, _ = data.make_records(np.arange(start, min(start + ROWS_PER_WRITE, rows)))
            for record in records:
                numbers = "\t".join(f"{value:.4f}" for value in record["numbers"])
                ids = "\t".join(f"{value:x}" for value in record["ids"])
                file.write(f"{int(record['label'])}\t{numbers}\t{ids}\n")


@dataclass(frozen=True, slots=True)
class ExperimentOutput:
    """The destination of the results, and the command that they name."""

    directory: Path
    command: str
    reporter: SubmissionReporter
    show_results: Callable[[Sequence[ConvergenceRun], Mapping[str, Any]], None]  # the runs, and the judgment on them


def run_experiment(
    data: str | None, workers: str | None, seeds: int | None, *, quick: bool, output: ExperimentOutput
) -> None:
    """Runs all jobs, then writes a figure and the numbers. If it is interrupted, it writes the completed runs."""
    settings = choose_settings(workers, seeds, quick=quick)
    data = resolve_data(data, quick=quick)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    output.directory.mkdir(parents=True, exist_ok=True)
    plans = plan_runs(settings)
    runs: list[ConvergenceRun] = []
    try:
        with tempfile.TemporaryDirectory(prefix="elasticdl-experiment-", ignore_cleanup_errors=True) as root:
            for run in _run_plans(plans, data, settings, Path(root), output.reporter):
                runs.append(run)
    finally:
        if runs:
            _write_results(runs, len(plans), data, settings, output)


def _run_plans(
    plans: Sequence[RunPlan], data: str, settings: ConvergenceSettings, root: Path, reporter: SubmissionReporter
) -> Iterator[ConvergenceRun]:
    import yaml

    from elasticdl.ctr import config_job

    if data == MADE_UP:
        data = str(root / "clicks.tsv")
        write_synthetic_clicks(Path(data), settings.synthetic_rows)
    config = root / f"{NAME}.yaml"
    config.write_text(yaml.safe_dump(config_document(data, settings)), encoding="utf-8")
    config_job.build_config(config, reporter)
    with reporter.analysis_progress() as progress:
        for number, plan in enumerate(plans):

            def update(done: float, what: str, before: int = number) -> None:
                progress(what, (before + done) / len(plans))

            run = run_job(plan, config, root, settings.max_changes, update)
            reporter.say(
                f"{plan.name}: best AUC {run.best_auc:.4f} in {run.updates:,} updates, {run.seconds:.0f} s; "
                f"{run.max_workers} workers at most, {run.joined} joined, {run.lost} lost"
            )
            yield run


def _write_results(
    runs: Sequence[ConvergenceRun], planned: int, data: str, settings: ConvergenceSettings, output: ExperimentOutput
) -> None:
    from elasticdl.experiments import figures

    judgment = judge_elastic_runs(runs)
    where = "made-up clicks" if data == MADE_UP else Path(data).name
    title = f"Wide & Deep, asynchronous ps, {where}: {len(runs)} of {planned} runs"
    notes = [f"{key}: {format_value(judgment[key])}" for key in _FIGURE_NOTES if key in judgment]
    output.show_results(runs, judgment)
    figures.draw_convergence(output.directory / f"{NAME}.png", title, runs, ["; ".join(notes)] if notes else [])
    document = {
        "command": output.command,
        "claim": ORIGINAL_CLAIM,
        "data": where,
        "runs planned": planned,
        "batch": settings.batch_size,
        "epochs": settings.epochs,
        "best AUC": summarize_best_aucs(runs),
        "elastic inside the spread": judgment,
        "runs": [run.to_document() for run in runs],
    }
    (output.directory / f"{NAME}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    output.reporter.say(f"{output.directory / NAME}.png and .json")


_FIGURE_NOTES = (
    "every elastic curve inside the spread",
    "every elastic curve within two standard deviations",
    "elastic best AUCs inside",
)


def format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
