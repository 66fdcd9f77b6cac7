"""How a job looks in a terminal: pure functions from a JobStatus to what rich draws."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elasticdl.cli import words
from elasticdl.master.actions import ROUTINE
from elasticdl.rpc import elasticdl_pb2 as pb

EVENTS = 8  # how many are shown
ROUTINE_EVENTS = 2  # how many of those are shown, where there are others
ENDED_WORKERS = 3  # how many of those that are gone are shown
ENDED_PS = 2

_PHASES = {
    "waiting": "yellow",
    "pending": "yellow",
    "running": "green",
    "stopping": "yellow",
    "stopped": "yellow",
    "succeeded": "bold green",
    "failed": "bold red",
}
_STATES = {
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
_ELSEWHERE = ("epoch-ended",)  # shown with the loss: of a job with short epochs nothing else would be seen
_KINDS = {
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


def job(status: pb.JobStatus, notice: str = "") -> RenderableType:
    """The whole view; `notice` is a line for the person, such as that the master is away."""
    parts: list[RenderableType] = [progress(status), figures(status), Text(), workers(status)]
    if status.ps:
        parts += [Text(), ps(status)]
    if status.events:
        parts += [Text(), events(status)]
    if notice:
        parts += [Text(), Text(notice, style="bold yellow")]
    return Panel(Group(*parts), title=title(status), title_align="left", border_style="bright_black")


def title(status: pb.JobStatus) -> Text:
    elapsed_s = status.now - status.started_at if status.started_at else 0.0
    return Text.assemble(
        (status.name or "job", "bold"),
        "  ",
        (status.phase or "starting", _PHASES.get(status.phase, "")),
        f"  round {status.round}  {words.duration(elapsed_s)}",
    )


def progress(status: pb.JobStatus) -> RenderableType:
    """One bar for the records, one for the epochs; leases have a bar of shards."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", style="bold")
    grid.add_column()
    grid.add_column()
    is_training = status.kind in ("", "training", "script")
    if words.counts_records(status):
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


def _epochs_done(status: pb.JobStatus) -> float:
    """Finished epochs, with the fraction of the running one."""
    return status.records / status.records_per_epoch if status.records_per_epoch else float(status.epoch)


def _bar(done: float, total: float, phase: str) -> ProgressBar:
    return ProgressBar(total=total or None, completed=done, width=44, pulse=not total and phase == "running")


def figures(status: pb.JobStatus) -> Text:
    """Loss, metrics, speed, time to go, newest checkpoint: those that are known."""
    parts: list[tuple[str, str]] = []
    if status.loss_step > 0:
        parts.append(("loss", f"{status.loss:.4f}"))
    if status.HasField("epoch_loss"):
        parts.append((f"mean of epoch {status.epoch_loss.epoch}", f"{status.epoch_loss.loss:.4f}"))
    if status.metrics:
        label = "so far" if status.kind == "prediction" else f"evaluation of step {status.metrics_step:,}"
        parts.append((label, words.metrics(status)))
    if status.records_per_s > 0:
        parts.append(("speed", f"{words.count(status.records_per_s)} records/s"))
    left_s = words.remaining_s(status)
    if left_s is not None:
        parts.append(("to go", words.duration(left_s)))
    if status.checkpoint_step > 0:
        parts.append(("checkpoint", f"step {status.checkpoint_step:,}"))
    text = Text()
    for label, value in parts:
        text.append("   " if text else "")
        text.append(f"{label} ", style="bright_black").append(value, style="bold")
    if status.reason:
        text.append("\n" if text else "").append(status.reason, style=_PHASES.get(status.phase, ""))
    return text


def workers(status: pb.JobStatus) -> RenderableType:
    """Those that live, and the last few that are gone."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black", show_edge=False)
    table.add_column("worker")
    for column in ("pid", "state", "since", "rank", "logical ranks", "step"):
        table.add_column(column, justify="left" if column == "state" else "right")
    gone = [worker for worker in status.workers if worker.state in words.ENDED]
    for worker in [*gone[len(gone) - min(len(gone), ENDED_WORKERS) :], *words.living(status)]:
        is_member = worker.rank >= 0
        table.add_row(
            Text(worker.id, style="" if worker.state not in words.ENDED else "bright_black"),
            str(worker.pid or ""),
            Text(worker.state, style=_STATES.get(worker.state, "")),
            words.duration(status.now - worker.since) if worker.since else "",
            str(worker.rank) if is_member else "",
            str(worker.logical_ranks) if is_member else "",
            f"{worker.step:,}" if worker.step >= 0 and worker.state not in words.ENDED else "",
        )
    living = len(words.living(status))
    heading = Text.assemble(
        (f"{living} worker{'s' * (living != 1)}", "bold"), (f", {words.bounds(status)}", "bright_black")
    )
    return Group(heading, table)


def ps(status: pb.JobStatus) -> RenderableType:
    """Those that live, and the last few that are gone."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black", show_edge=False)
    table.add_column("ps")
    columns = ("pid", "state", "since", "slots", "rows", "memory", "requests/s", "lock wait", "staleness", "copies")
    for column in columns:
        table.add_column(column, justify="left" if column in ("state", "copies") else "right")
    gone = [one for one in status.ps if one.state in words.ENDED]
    for one in [*gone[len(gone) - min(len(gone), ENDED_PS) :], *words.living_ps(status)]:
        has_ended = one.state in words.ENDED
        table.add_row(
            Text(one.id, style="bright_black" if has_ended else ""),
            str(one.pid or ""),
            Text(one.state, style=_STATES.get(one.state, "")),
            words.duration(status.now - one.since) if one.since else "",
            *([""] * 6 if has_ended else _figures_of(one)),
            one.replica,
        )
    living = len(words.living_ps(status))
    about = f", {status.wished_ps} wished, {status.ps_mode}"
    return Group(Text.assemble((f"{living} ps", "bold"), (about, "bright_black")), table)


def _figures_of(one: pb.PsStatus) -> list[str]:
    beat = one.beat
    return [
        f"{one.slots:,}",
        f"{beat.rows:,}",
        words.size(beat.bytes),
        words.count(one.requests_per_s),
        f"{beat.lock_wait_s:.2f} s",
        words.staleness(beat.staleness),
    ]


def choose_events(events: Sequence[pb.EventStatus], most: int) -> list[pb.EventStatus]:
    """The newest, in their order; evaluations and checkpoints take the room of no other event but for the last few."""
    routine = [place for place, event in enumerate(events) if event.kind in ROUTINE]
    notable = [place for place, event in enumerate(events) if event.kind not in ROUTINE]
    count = max(ROUTINE_EVENTS, most - len(notable))
    chosen = [*routine[max(len(routine) - count, 0) :]]
    chosen += notable[max(len(notable) - (most - len(chosen)), 0) :]
    return [events[place] for place in sorted(chosen)]


def events(status: pb.JobStatus) -> RenderableType:
    """The newest events, each with its reason and what it cost."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black", show_edge=False)
    for column in ("time", "event", "worker", "reason"):
        table.add_column(column, no_wrap=column != "reason", overflow="fold")
    table.add_column("cost", justify="right", no_wrap=True)
    shown = [event for event in status.events if event.kind not in _ELSEWHERE]
    for event in choose_events(shown, EVENTS):
        table.add_row(
            words.clock(event.at),
            Text(event.kind, style=_KINDS.get(event.kind, "")),
            event.worker,
            Text(event.reason, style="bright_black"),
            words.cost(event.cost_s),
        )
    return table
