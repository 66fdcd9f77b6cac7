"""Shows the scheduler: a panel that is redrawn in a terminal, a line for each change elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elasticdl.cli.screens.live_job import open_live, print_line, update_live
from elasticdl.jobs import formatting, queueing
from elasticdl.scheduler.accounts.events import JobExited
from elasticdl.scheduler.accounts.report import ScheduledJobState, ScheduledJobStatus, SchedulerReport

_STATE_STYLES = {"running": "green", "waiting": "yellow", "starting": "cyan", "suspending": "magenta"}
_END_STYLES = {"succeeded": "green", "failed": "bold red", "stopped": "yellow"}
_RIGHT_ALIGNED = ("workers", "progress", "priority", "served", "wait")


def state_name(job: ScheduledJobStatus) -> str:
    """The state of the job in a word."""
    if job.state is ScheduledJobState.WAITING and job.allocated:
        return "starting"
    return job.state.value


def wait_text(job: ScheduledJobStatus) -> str:
    if not job.is_waiting and not job.is_shrunk:
        return ""
    return "?" if job.expected_wait_s is None else formatting.format_duration(job.expected_wait_s)


def scheduler_panel(
    report: SchedulerReport, ended: Sequence[JobExited], notice: str = "", max_rows: int = 1000
) -> RenderableType:
    """The whole view; `ended` are the newest jobs that are over, `max_rows` limits how many of the others are shown."""
    parts: list[RenderableType] = [_utilization_bar(report), Text(), queued_jobs_table(report, max_rows)]
    if (hidden := len(report.jobs) - max_rows) > 0:
        parts.append(Text(f"and {hidden} more: `elasticdl jobs`", style="bright_black"))
    if ended:
        over = Text("over  ", style="bright_black")
        for exited in ended:
            over.append(f"{exited.name} ").append(exited.phase, style=_END_STYLES.get(exited.phase, "")).append("   ")
        parts += [Text(), over]
    if report.policy_error:
        parts += [Text(), Text(f"the policy failed, the last plan stays: {report.policy_error}", style="bold red")]
    if notice:
        parts += [Text(), Text(notice, style="bright_black")]
    title = Text.assemble(("scheduler", "bold"), f"  {report.policy}  {formatting.format_time(report.written_at)}")
    return Panel(Group(*parts), title=title, title_align="left", border_style="bright_black")


def _utilization_bar(report: SchedulerReport) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    nodes = f" on {len(report.nodes)} nodes" if len(report.nodes) > 1 else ""
    waiting = sum(job.is_waiting for job in report.jobs.values())
    having = len(report.jobs) - waiting
    counts = f"{having} job{'s' * (having != 1)} with workers, {waiting} waiting"
    bar = ProgressBar(total=report.total_devices, completed=report.used_devices, width=44)
    grid.add_row(
        Text("devices", style="bold"), bar, f"{report.used_devices} of {report.total_devices}{nodes}, {counts}"
    )
    return grid


def queued_jobs_table(report: SchedulerReport, max_rows: int) -> RenderableType:
    """Lists jobs with workers first, then those that wait, each group in the order of service."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black", show_edge=False)
    has_priorities = any(job.priority for job in report.jobs.values())
    columns = (
        "job",
        "state",
        "workers",
        "progress",
        *(["priority"] if has_priorities else []),
        "served",
        "wait",
        "why",
    )
    for column in columns:
        table.add_column(column, justify="right" if column in _RIGHT_ALIGNED else "left", no_wrap=column != "why")
    order = sorted(report.jobs.items(), key=_display_order)
    for name, job in order[:max_rows]:
        account = job.account
        table.add_row(
            name,
            Text(state_name(job), style=_STATE_STYLES.get(state_name(job), "")),
            f"{job.worker_count} of {job.max_workers}",
            f"{account.step / account.total_steps:.0%}" if account.total_steps else "",
            *([str(job.priority)] if has_priorities else []),
            formatting.format_duration(account.attained_s),
            wait_text(job),
            Text(job.reason, style="bright_black"),
        )
    return table if order else Text("no jobs yet; submit one with `elasticdl train --queue`", style="bright_black")


def _display_order(job: tuple[str, ScheduledJobStatus]) -> tuple[bool, int, float, str]:
    name, status = job
    return status.is_waiting, -status.priority, status.submitted_at, name


def change_lines(before: SchedulerReport | None, after: SchedulerReport, ended: Sequence[JobExited]) -> Iterator[str]:
    """Describes what changed between two reports, for output without a terminal."""
    written_at = formatting.format_time(after.written_at)
    jobs_before = before.jobs if before else {}
    for over in ended:
        yield f"{written_at} {over.name} is over: {over.phase}"
    for name, job in after.jobs.items():
        old = jobs_before.get(name)
        if old is None or old.allocated != job.allocated:
            yield f"{written_at} {name} {_describe_change(old, job)}"
    was_in_trouble = before.policy_error if before else ""
    if after.policy_error != was_in_trouble:
        failed = f"policy {after.policy} failed, the last plan stays: {after.policy_error}"
        yield f"{written_at} {failed if after.policy_error else f'policy {after.policy} decides again'}"


def _describe_change(old: ScheduledJobStatus | None, job: ScheduledJobStatus) -> str:
    count = f"{job.worker_count} worker{'s' * (job.worker_count != 1)}"
    if job.is_waiting:
        return f"{'is suspended' if job.account.launches else 'is queued'}: {queueing.explain_scheduling(job)}"
    if old is None or old.is_waiting:
        # The launch that is under way counts already, unless its devices are not there yet.
        launches_before = job.account.launches - (job.state is ScheduledJobState.RUNNING)
        return f"{'goes on' if launches_before else 'starts'} with {count}: {job.reason}"
    return f"{old.worker_count} → {count}: {job.reason}"


MAX_ENDED_JOBS = 5  # how many jobs that are over are shown
FRAME_LINES = 14  # lines of the view beside its jobs, some of them wrapped


class SchedulerScreen:
    """Shows reports and notices. A terminal that is gone is not an error."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console = console
        self._live = live
        self._report: SchedulerReport | None = None
        self._ended: deque[JobExited] = deque(maxlen=MAX_ENDED_JOBS)
        self._notice = ""

    @classmethod
    @contextmanager
    def open(cls) -> Iterator[SchedulerScreen]:
        console = Console()
        with open_live(console) as live:
            yield cls(console, live)

    def show(self, report: SchedulerReport, ended: list[JobExited]) -> None:
        before, self._report = self._report, report
        self._ended.extend(ended)
        if self._live:
            self._draw()
        else:
            for line in change_lines(before, report, ended):
                self._print(line)

    def show_notice(self, notice: str) -> None:
        self._notice = notice
        self._draw() if self._live else self._print(notice)

    def _draw(self) -> None:
        assert self._live is not None
        report, notice = self._report, self._notice
        max_rows = max(self._console.height - FRAME_LINES, 3)
        panel = scheduler_panel(report, list(self._ended), notice, max_rows) if report else Text(notice)
        update_live(self._live, panel)

    def _print(self, line: str) -> None:
        print_line(self._console, line)
