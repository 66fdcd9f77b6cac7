"""Tables of the results of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from elasticdl.experiments.convergence.experiment import format_value
from elasticdl.experiments.convergence.judgment import ORIGINAL_CLAIM, ConvergenceRun, Spread, group_runs


def print_policies(summaries: Mapping[str, Mapping[str, str]], claim: str) -> None:
    """A row for each policy, then what the original claims."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("policy")
    for title in next(iter(summaries.values())):
        table.add_column(title, justify="right")
    for policy, summary in summaries.items():
        table.add_row(policy, *summary.values())
    console = Console()
    console.print(table)
    console.print(claim, markup=False, highlight=False, soft_wrap=True)


def print_convergence(runs: Sequence[ConvergenceRun], judgment: Mapping[str, Any]) -> None:
    """A row for each group of runs, then the judgment on the elastic ones."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("workers", "runs", "best AUC, mean", "least", "most", "last AUC, mean", "seconds", "joined", "lost"):
        table.add_column(title, justify="left" if title == "workers" else "right")
    for name, group in group_runs(runs).items():
        best, last = (
            Spread.from_values([run.best_auc for run in group]),
            Spread.from_values([run.last_auc for run in group]),
        )
        seconds = Spread.from_values([run.seconds for run in group]).mean
        counts = (sum(run.joined for run in group), sum(run.lost for run in group))
        numbers = (
            f"{best.mean:.4f}",
            f"{best.minimum:.4f}",
            f"{best.maximum:.4f}",
            f"{last.mean:.4f}",
            f"{seconds:.0f}",
        )
        table.add_row(name, str(len(group)), *numbers, *map(str, counts))
    console = Console()
    console.print(table)
    for key, value in judgment.items():
        console.print(f"{key}: {format_value(value)}", markup=False, highlight=False, soft_wrap=True)
    console.print(ORIGINAL_CLAIM, markup=False, highlight=False, soft_wrap=True)
