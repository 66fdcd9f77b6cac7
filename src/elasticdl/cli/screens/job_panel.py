"""A job as a panel in the terminal: pure functions from a JobStatus to rich renderables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elasticdl.jobs import formatting
from elasticdl.jobs.job_status import JobEvent, JobStatus, PsStatus
from elasticdl.master.machine.actions import ROUTINE_KINDS
from elasticdl.spec import JobKind

MAX_EVENTS = 8  # how many are shown
MIN_ROUTINE_EVENTS = 2  # how many of those are shown if there are others
MAX_ENDED_WORKERS = 3  # how many ended workers are shown
MAX_ENDED_PS = 2

_PHASE_STYLES = {
    "waiting": "yellow",
    "pending": "yellow",
    "running": "green",
    "stopping": "yellow",
    "stopped": "yellow",
    "succeeded": "bold green",
    "failed": "bold red",
}
_STATE_STYLES = {
    "launching": "yellow",
    "starting": "yellow",
    "ready": "cyan",
    "joining": "cyan",
    "member": "green",
    "leaving": "magenta",
    "serving": "green",
    "draining": "magenta",
    "finished": "green",
    "left": "bright_black",
    "lost": "red",
}
_EVENTS_SHOWN_ELSEWHERE = ("epoch-ended",)  # in the line with the loss; short epochs would fill the table
_EVENT_STYLES = {
    "worker-joined": "green",
    "worker-left": "magenta",
    "worker-lost": "red",
    "ps-serving": "green",
    "ps-drained": "magenta",
    "ps-lost": "red",
    "restored": "yellow",
    "promoted": "yellow",
    "lease-expired": "red",
    "failed": "bold red",
    "finished": "bold green",
    "stopping": "yellow",
    "stopped": "yellow",
    "master-restarted": "yellow",
}


def job_panel(status: JobStatus, notice: str = "") -> RenderableType:
    """The whole view; `notice` is a line for the user, for example that the master is away."""
    parts: list[RenderableType] = [progress_bars(status), measurements_line(status), Text(), workers_table(status)]
    if status.ps:
        parts += [Text(), ps_table(status)]
    if status.events:
        parts += [Text(), events_table(status)]
    if notice:
        parts += [Text(), Text(notice, style="bold yellow")]
    return Panel(Group(*parts), title=panel_title(status), title_align="left", border_style="bright_black")


def panel_title(status: JobStatus) -> Text:
    elapsed_s = status.updated_at - status.started_at if status.started_at else 0.0
    return Text.assemble(
        (status.name or "job", "bold"),
        "  ",
        (status.phase.value, _PHASE_STYLES.get(status.phase, "")),
        f"  round {status.round}  {formatting.format_duration(elapsed_s)}",
    )


def progress_bars(status: JobStatus) -> RenderableType:
    """One bar for the records and one for the epochs; evaluations and predictions have a bar for shards."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", style="bold")
    grid.add_column()
    grid.add_column()
    is_training = status.kind in (JobKind.TRAINING, JobKind.SCRIPT)
    if formatting.has_record_count(status):
        total = f" of {status.total_records:,}" if status.total_records else ""
        steps = f" of {status.total_steps:,}" if status.total_steps else ""
        grid.add_row(
            "records",
            _bar(status.records, status.total_records, status.phase),
            f"{status.records:,}{total}  step {status.step:,}{steps}",
        )
    if is_training and status.epochs:
        grid.add_row(
            "epochs",
            _bar(_epochs_done(status), status.epochs, status.phase),
            f"{min(status.epoch + 1, status.epochs)} of {status.epochs}",
        )
    if not is_training and status.shards:
        grid.add_row(
            "shards", _bar(status.shards_done, status.shards, status.phase), f"{status.shards_done} of {status.shards}"
        )
    return grid


def _epochs_done(status: JobStatus) -> float:
    """Finished epochs, with the fraction of the running one."""
    return status.records / status.records_per_epoch if status.records_per_epoch else float(status.epoch)


def _bar(done: float, total: float | None, phase: str) -> ProgressBar:
    return ProgressBar(total=total or None, completed=done, width=44, pulse=not total and phase == "running")


def measurements_line(status: JobStatus) -> Text:
    """Loss, metrics, speed, remaining time and newest checkpoint, as far as they are known."""
    parts: list[tuple[str, str]] = []
    if status.loss is not None:
        parts.append(("loss", f"{status.loss:.4f}"))
    if status.epoch_loss is not None:
        parts.append((f"mean of epoch {status.epoch_loss.epoch}", f"{status.epoch_loss.loss:.4f}"))
    if status.metrics:
        label = "so far" if status.kind is JobKind.PREDICTION else f"evaluation of step {status.metrics_step:,}"
        parts.append((label, formatting.format_metrics(status)))
    if status.records_per_s > 0:
        parts.append(("speed", f"{formatting.format_count(status.records_per_s)} records/s"))
    left_s = formatting.remaining_s(status)
    if left_s is not None:
        parts.append(("to go", formatting.format_duration(left_s)))
    if status.checkpoint_step:
        parts.append(("checkpoint", f"step {status.checkpoint_step:,}"))
    text = Text()
    for label, value in parts:
        text.append("   " if text else "")
        text.append(f"{label} ", style="bright_black").append(value, style="bold")
    if status.reason:
        text.append("\n" if text else "").append(status.reason, style=_PHASE_STYLES.get(status.phase, ""))
    return text


def workers_table(status: JobStatus) -> RenderableType:
    """A row for each living one, and for the last few that ended."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black", show_edge=False)
    table.add_column("worker")
    for column in ("pid", "state", "since", "rank", "logical ranks", "step"):
        table.add_column(column, justify="left" if column == "state" else "right")
    gone = [worker for worker in status.workers if not worker.is_alive][-MAX_ENDED_WORKERS:]
    for worker in [*gone, *(worker for worker in status.workers if worker.is_alive)]:
        is_member = worker.rank is not None
        table.add_row(
            Text(worker.name, style="" if worker.is_alive else "bright_black"),
            str(worker.pid or ""),
            Text(worker.state, style=_STATE_STYLES.get(worker.state, "")),
            formatting.format_duration(status.updated_at - worker.since) if worker.since else "",
            str(worker.rank) if is_member else "",
            str(worker.logical_ranks) if is_member else "",
            f"{worker.step:,}" if worker.step is not None and worker.is_alive else "",
        )
    living = formatting.count_living(status.workers)
    heading = Text.assemble(
        (f"{living} worker{'s' * (living != 1)}", "bold"),
        (f", {formatting.format_worker_bounds(status)}", "bright_black"),
    )
    return Group(heading, table)


def ps_table(status: JobStatus) -> RenderableType:
    """A row for each living one, and for the last few that ended."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black", show_edge=False)
    table.add_column("ps")
    columns = ("pid", "state", "since", "slots", "rows", "memory", "requests/s", "lock wait", "staleness", "backup")
    for column in columns:
        table.add_column(column, justify="left" if column in ("state", "backup") else "right")
    gone = [ps for ps in status.ps if not ps.is_alive][-MAX_ENDED_PS:]
    for ps in [*gone, *(ps for ps in status.ps if ps.is_alive)]:
        table.add_row(
            Text(ps.name, style="" if ps.is_alive else "bright_black"),
            str(ps.pid or ""),
            Text(ps.state, style=_STATE_STYLES.get(ps.state, "")),
            formatting.format_duration(status.updated_at - ps.since) if ps.since else "",
            *(_ps_cells(ps) if ps.is_alive else [""] * 6),
            ps.backup or "",
        )
    living = formatting.count_living(status.ps)
    about = f", {status.desired_ps} desired, {status.ps_mode}"
    return Group(Text.assemble((f"{living} ps", "bold"), (about, "bright_black")), table)


def _ps_cells(ps: PsStatus) -> list[str]:
    return [
        f"{ps.slots:,}",
        f"{ps.rows:,}",
        formatting.format_bytes(ps.memory_bytes),
        formatting.format_count(ps.requests_per_s),
        f"{ps.lock_wait_s:.2f} s",
        formatting.format_staleness(ps.staleness),
    ]


def choose_events(events: Sequence[JobEvent], max_count: int) -> list[JobEvent]:
    """Chooses the newest, in order. Only the last few evaluations and checkpoints may displace other events."""
    routine = [index for index, event in enumerate(events) if event.kind in ROUTINE_KINDS]
    notable = [index for index, event in enumerate(events) if event.kind not in ROUTINE_KINDS]
    count = max(MIN_ROUTINE_EVENTS, max_count - len(notable))
    chosen_indices = [*routine[max(len(routine) - count, 0) :]]
    chosen_indices += notable[max(len(notable) - (max_count - len(chosen_indices)), 0) :]
    return [events[index] for index in sorted(chosen_indices)]


def events_table(status: JobStatus) -> RenderableType:
    """The newest events, each with its reason and what it cost."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black", show_edge=False)
    for column in ("time", "event", "replica", "reason"):
        table.add_column(column, no_wrap=column != "reason", overflow="fold")
    table.add_column("cost", justify="right", no_wrap=True)
    events = [event for event in status.events if event.kind not in _EVENTS_SHOWN_ELSEWHERE]
    for event in choose_events(events, MAX_EVENTS):
        table.add_row(
            formatting.format_time(event.at),
            Text(event.kind, style=_EVENT_STYLES.get(event.kind, "")),
            event.replica or "",
            Text(event.reason, style="bright_black"),
            formatting.format_cost(event.cost_s),
        )
    return table
