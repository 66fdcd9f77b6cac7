"""`elasticdl experiment convergence`: the original's third experiment, Wide & Deep with fixed and elastic workers."""

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

from elasticdl.cli.command import typed
from elasticdl.cli.convergence_result import CLAIM, Run, Spread, groups, judged, summary
from elasticdl.cli.convergence_run import Plan, run
from elasticdl.errors import SpecError

MADE_UP = "made-up"
COLUMNS = "label,I1..I13,C1..C26"
NAME, MODEL = "convergence", "wide_deep"
# Fixed, whatever would be proposed: ids of all columns, and logarithms of the counts. I10 has few values.
FEATURES = {
    "I*": ["normalize(log=true)", "log_square()"],
    "I10": "lookup(min_count=2)",
    "C*": "lookup(min_count=2, most=100000)",
}
PIECE = 10_000  # made-up rows that are written at a time


@dataclass(frozen=True, slots=True)
class Setting:
    """How much is trained, and by how many."""

    low: int
    high: int
    seeds: int
    rows: int  # of made-up data
    batch: int
    epochs: int
    evaluations: int  # an epoch
    changes: int  # of workers while an elastic one trains, at most


FULL = Setting(4, 8, 3, rows=200_000, batch=128, epochs=2, evaluations=8, changes=12)
QUICK = Setting(2, 4, 2, rows=24_000, batch=64, epochs=2, evaluations=4, changes=8)


def setting(workers: str | None, seeds: int | None, *, quick: bool) -> Setting:
    chosen = QUICK if quick else FULL
    if workers is not None:
        low, high = _two(workers)
        chosen = replace(chosen, low=low, high=high)
    return replace(chosen, seeds=seeds) if seeds is not None else chosen


def _two(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) == 2 and all(part.strip().isdigit() for part in parts):
        low, high = int(parts[0]), int(parts[1])
        if 1 <= low < high:
            return low, high
    raise SpecError(f"--workers: expected the fewest and the most, e.g. 4,8; received {text!r}")


def plans(chosen: Setting) -> list[Plan]:
    """Seed by seed, so that an experiment that is cut short has something of all groups."""
    low, high = chosen.low, chosen.high
    kinds = ((f"fixed {low}", low, low), (f"fixed {high}", high, high), (f"elastic {low}-{high}", low, high))
    return [Plan(group, fewest, most, seed) for seed in range(chosen.seeds) for group, fewest, most in kinds]


def data_of(given: str | None, *, quick: bool) -> str:
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


def document(data: str, chosen: Setting) -> dict[str, Any]:
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
            "batch_size": chosen.batch,
            "evaluations": chosen.evaluations,
        },
        "workers": [chosen.low, chosen.high],
        "report": False,
        "job": {"ps": {"mode": "async"}, "checkpoint": {"steps": 0}, "workers": {"threads": 1}},
    }


def write_made_up(path: Path, rows: int) -> None:
    """Clicks of the zoo's generator in the form of the challenge's files."""
    import numpy as np

    from elasticdl.zoo.ctr import clicks

    with path.open("w", encoding="ascii") as file:
        for start in range(0, rows, PIECE):
            found, _ = clicks.make(np.arange(start, min(start + PIECE, rows)))
            for one in found:
                numbers = "\t".join(f"{value:.4f}" for value in one["numbers"])
                ids = "\t".join(f"{value:x}" for value in one["ids"])
                file.write(f"{int(one['label'])}\t{numbers}\t{ids}\n")


def without_callbacks(model: Path) -> None:
    """All runs see all of the data at one learning rate: none ends early or slows down by what it measured itself."""
    text = model.read_text(encoding="utf-8")
    changed = text.replace("return _JOB.callbacks()", "return []")
    assert changed != text
    model.write_text(changed, encoding="utf-8")


def experiment(given: str | None, workers: str | None, seeds: int | None, *, quick: bool, output: Path) -> None:
    """Nine runs, a table, a picture and the numbers. What there is when it is ended early is shown and written, too."""
    chosen = setting(workers, seeds, quick=quick)
    data = data_of(given, quick=quick)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    output.mkdir(parents=True, exist_ok=True)
    command, all_of = typed(), plans(chosen)
    found: list[Run] = []
    try:
        with tempfile.TemporaryDirectory(prefix="elasticdl-experiment-", ignore_cleanup_errors=True) as root:
            for one in _played(all_of, data, chosen, Path(root)):
                found.append(one)
    finally:
        if found:
            _finish(found, len(all_of), data, chosen, command, output)


def _played(all_of: Sequence[Plan], data: str, chosen: Setting, root: Path) -> Iterator[Run]:
    import yaml
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from elasticdl.cli import ctr_job

    if data == MADE_UP:
        data = str(root / "clicks.tsv")
        write_made_up(Path(data), chosen.rows)
    config = root / f"{NAME}.yaml"
    config.write_text(yaml.safe_dump(document(data, chosen)), encoding="utf-8")
    _, built = ctr_job.build(config)
    without_callbacks(built.directory / f"{MODEL}.py")
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[what]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("runs", total=len(all_of), what="")
        for number, plan in enumerate(all_of):

            def tell(done: float, what: str, before: int = number) -> None:
                shown.update(task, completed=before + done, what=what)

            one = run(plan, config, root, chosen.changes, tell)
            click.echo(
                f"{plan.name}: best AUC {one.best:.4f} in {one.updates:,} updates, {one.seconds:.0f} s; "
                f"{one.most_workers} workers at most, {one.joined} joined, {one.lost} lost"
            )
            yield one


def _finish(found: Sequence[Run], planned: int, data: str, chosen: Setting, command: str, output: Path) -> None:
    from elasticdl.cli import convergence_picture

    said = judged(found)
    where = "made-up clicks" if data == MADE_UP else Path(data).name
    title = f"Wide & Deep, asynchronous ps, {where}: {len(found)} of {planned} runs"
    notes = [f"{key}: {_word(said[key])}" for key in _SHOWN if key in said]
    _table(found, said)
    convergence_picture.draw(output / f"{NAME}.png", title, found, ["; ".join(notes)] if notes else [])
    written = {
        "command": command,
        "claim": CLAIM,
        "data": where,
        "runs planned": planned,
        "batch": chosen.batch,
        "epochs": chosen.epochs,
        "best AUC": summary(found),
        "elastic inside the spread": said,
        "runs": [one.document() for one in found],
    }
    (output / f"{NAME}.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    click.echo(f"{output / NAME}.png and .json")


_SHOWN = (
    "every elastic curve inside the spread",
    "every elastic curve within two standard deviations",
    "elastic best AUCs inside",
)


def _table(found: Sequence[Run], said: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("workers", "runs", "best AUC, mean", "least", "most", "last AUC, mean", "seconds", "joined", "lost"):
        table.add_column(title, justify="left" if title == "workers" else "right")
    for name, runs in groups(found).items():
        best, last = Spread.of([one.best for one in runs]), Spread.of([one.last for one in runs])
        seconds = Spread.of([one.seconds for one in runs]).mean
        counts = (sum(one.joined for one in runs), sum(one.lost for one in runs))
        numbers = (f"{best.mean:.4f}", f"{best.least:.4f}", f"{best.most:.4f}", f"{last.mean:.4f}", f"{seconds:.0f}")
        table.add_row(name, str(len(runs)), *numbers, *map(str, counts))
    console = Console()
    console.print(table)
    for key, value in said.items():
        console.print(f"{key}: {_word(value)}", markup=False, highlight=False, soft_wrap=True)
    console.print(CLAIM, markup=False, highlight=False, soft_wrap=True)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
