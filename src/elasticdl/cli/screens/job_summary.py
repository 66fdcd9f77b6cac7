"""What a user sees when a job is over."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from elasticdl.jobs import formatting, history
from elasticdl.jobs.job_status import JobStatus
from elasticdl.launcher.kubernetes.pod_template import STATE_MOUNT
from elasticdl.master.machine.events import EpochLoss
from elasticdl.model.reduction import BAD_ROWS
from elasticdl.spec import JobKind, Phase
from elasticdl.spec.directory import JobDirectory

_MAX_NAMED_BAD_RECORDS = 5
_TITLES = {"succeeded": ("done", "bold green"), "stopped": ("stopped", "bold yellow")}


def print_summary(status: JobStatus, directory: JobDirectory | None, console: Console) -> None:
    """Prints a framed table in a terminal, and elsewhere lines without a frame that would break paths.

    `directory` is None for a job on a cluster.
    """
    if console.is_terminal:
        console.print(summary_panel(status, directory))
        return
    for label, value in [(status.name, status.phase), *summary_rows(status, directory)]:
        console.print(f"{label:<12} {value}", highlight=False, markup=False, soft_wrap=True)


def summary_panel(status: JobStatus, directory: JobDirectory | None) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in summary_rows(status, directory):
        grid.add_row(label, value)
    title, style = _TITLES.get(status.phase, ("failed", "bold red"))
    heading = Text.assemble((status.name, "bold"), " ", (title, style))
    return Panel(grid, title=heading, title_align="left", border_style="bright_black", expand=False)


def summary_rows(status: JobStatus, directory: JobDirectory | None) -> list[tuple[str, str]]:
    """Label and text of each line, for what the job has."""
    is_training = status.kind in (JobKind.TRAINING, JobKind.SCRIPT)
    is_early = status.phase is not Phase.SUCCEEDED or (is_training and status.records < (status.total_records or 0))
    lines = [("why", status.reason)] if status.reason and is_early else []
    if status.kind is JobKind.PREDICTION:
        if BAD_ROWS in status.metrics:
            lines.append(("bad rows", f"{int(status.metrics[BAD_ROWS]):,}, named in elasticdl logs {status.name}"))
    elif status.metrics:
        lines.append(
            ("metrics", formatting.format_metrics(status) + (f" (step {status.metrics_step:,})" if is_training else ""))
        )
    if status.bad_records:
        named = "; ".join(status.bad_record_names[:_MAX_NAMED_BAD_RECORDS])
        more = ", …" if status.bad_records > _MAX_NAMED_BAD_RECORDS else ""
        lines.append(("bad records", f"{status.bad_records:,} skipped: {named}{more}"))
    if status.best and is_training:
        lines.append(("best", status.best))
    if formatting.has_record_count(status):
        lines.append(("records", format_records(status)))
        lines.append(
            ("steps", f"{status.step:,} of {status.total_steps:,}" if status.total_steps else f"{status.step:,}")
        )
    elif status.total_records:
        lines.append(("records", f"{status.records:,} of {status.total_records:,}"))
    if status.loss is not None and is_training:
        lines.append(("loss", f"{status.loss:.4f} (step {status.loss_step:,})"))
    if status.epoch_loss is not None and is_training:
        lines.append(("epoch loss", format_epoch_loss(status.epoch_loss, status.records_per_epoch)))
    lines.append(("took", formatting.format_duration(status.updated_at - status.started_at)))
    if directory is not None and (earlier := history.read_earlier_run(directory)) is not None:
        lines.append(("resumed", earlier.describe()))
    elif resumption := next((event.reason for event in status.events if event.kind == history.RESUMED_EVENT), ""):
        lines.append(("resumed", resumption))  # by the master, from the checkpoint
    lines += _path_rows(status, directory, "model" if is_training else "output")
    if (
        status.kind is JobKind.SCRIPT and directory is not None
    ):  # else it stands there already, as the place of the logs
        lines.append(("printed", f"elasticdl logs {status.name}"))
    if directory and status.phase is not Phase.SUCCEEDED and status.checkpoint and is_training:
        lines.append(("go on", formatting.resume_command(status.name, status.kind)))
    return lines


def _path_rows(status: JobStatus, directory: JobDirectory | None, output: str) -> list[tuple[str, str]]:
    """Paths that exist, or, on a cluster, paths inside its pods."""
    places = [(output, status.output), ("checkpoint", status.checkpoint)]
    if directory is None:
        places.append(("logs", f"elasticdl logs {status.name}"))
        return [(label, _pod_path(path)) for label, path in places if path]
    files = (("timeline", directory.timeline), ("TensorBoard", directory.tensorboard), ("logs", directory.logs))
    places += [(label, str(path)) for label, path in files]
    return [(label, path) for label, path in places if path and ("://" in path or Path(path).exists())]


def _pod_path(path: str) -> str:
    is_gone = path.startswith(f"{STATE_MOUNT}/")
    return f"gone with its pod, where it lay in {path}: name a place on a --volume" if is_gone else path


def format_epoch_loss(mean: EpochLoss, records_per_epoch: int | None) -> str:
    """0.1623, mean of epoch 3; with the number of records if the epoch is incomplete."""
    text = f"{mean.loss:.4f}, mean of epoch {mean.epoch}"
    is_whole = mean.records >= (records_per_epoch or 0)
    return text if is_whole else f"{text} so far, {mean.records:,} of {records_per_epoch:,} records"


def format_records(status: JobStatus) -> str:
    """Compares the records trained with the records planned."""
    if not status.total_records:
        return f"{status.records:,}"
    planned, each = f"{status.total_records:,} records", status.records_per_epoch
    if each and status.total_records > each:
        is_whole = status.total_records % each == 0
        epochs = status.total_records / each
        planned = f"{each:,} records x {epochs:.0f} epochs" if is_whole else f"{planned} of {epochs:.1f} epochs"
    if status.records == status.total_records:
        return f"{status.records:,} trained = {planned}, none lost, none twice"
    if status.records > status.total_records:
        return f"{status.records:,} trained, {status.records - status.total_records:,} too many for {planned}"
    outlook = "the rest was not needed" if status.phase is Phase.SUCCEEDED else "{:,} to go"
    return f"{status.records:,} trained of {planned}, {outlook.format(status.total_records - status.records)}"
