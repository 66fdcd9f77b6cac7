"""How the scheduler looks: pure functions from its reports to a table, or to lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elasticdl.cli import queued, words
from elasticdl.scheduler.local.events import Ended
from elasticdl.scheduler.local.standing import Report, Standing, State

_STYLES = {"running": "green", "waiting": "yellow", "starting": "cyan", "suspending": "magenta"}
_ENDS = {"succeeded": "green", "failed": "bold red", "stopped": "yellow"}
_RIGHT = ("workers", "progress", "priority", "served", "wait")


def state(one: Standing) -> str:
    """What the job does, in a word."""
    if one.state is State.WAITING and one.given:
        return "starting"
    return one.state.value


def wait(one: Standing) -> str:
    if not one.is_waiting and not one.is_shrunk:
        return ""
    return "?" if one.expected_wait_s is None else words.duration(one.expected_wait_s)


def picture(report: Report, ended: Sequence[Ended], notice: str = "", most: int = 1000) -> RenderableType:
    """The whole view; `ended` are the newest jobs that are over, `most` is how many of the others are shown."""
    parts: list[RenderableType] = [_use(report), Text(), table(report, most)]
    if (hidden := len(report.jobs) - most) > 0:
        parts.append(Text(f"and {hidden} more: `elasticdl jobs`", style="bright_black"))
    if ended:
        over = Text("over  ", style="bright_black")
        for one in ended:
            over.append(f"{one.name} ").append(one.phase, style=_ENDS.get(one.phase, "")).append("   ")
        parts += [Text(), over]
    if report.trouble:
        parts += [Text(), Text(f"the policy failed, the last plan stays: {report.trouble}", style="bold red")]
    if notice:
        parts += [Text(), Text(notice, style="bright_black")]
    title = Text.assemble(("scheduler", "bold"), f"  {report.policy}  {words.clock(report.written_at)}")
    return Panel(Group(*parts), title=title, title_align="left", border_style="bright_black")


def _use(report: Report) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    nodes = f" on {len(report.nodes)} nodes" if len(report.nodes) > 1 else ""
    waiting = sum(one.is_waiting for one in report.jobs.values())
    having = len(report.jobs) - waiting
    counts = f"{having} job{'s' * (having != 1)} with workers, {waiting} waiting"
    bar = ProgressBar(total=report.devices, completed=report.used, width=44)
    grid.add_row(Text("devices", style="bold"), bar, f"{report.used} of {report.devices}{nodes}, {counts}")
    return grid


def table(report: Report, most: int) -> RenderableType:
    """Those with workers first, then those that wait, each in the order they are served."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black", show_edge=False)
    has_priorities = any(one.priority for one in report.jobs.values())
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
        drawn.add_column(column, justify="right" if column in _RIGHT else "left", no_wrap=column != "why")
    order = sorted(report.jobs.items(), key=_turn)
    for name, one in order[:most]:
        account = one.account
        drawn.add_row(
            name,
            Text(state(one), style=_STYLES.get(state(one), "")),
            f"{one.workers} of {one.maximum}",
            f"{account.step / account.total_steps:.0%}" if account.total_steps else "",
            *([str(one.priority)] if has_priorities else []),
            words.duration(account.attained_s),
            wait(one),
            Text(one.reason, style="bright_black"),
        )
    return drawn if order else Text("no jobs yet; hand one over with `elasticdl train --queue`", style="bright_black")


def _turn(job: tuple[str, Standing]) -> tuple[bool, int, float, str]:
    name, one = job
    return one.is_waiting, -one.priority, one.submitted_at, name


def lines(before: Report | None, after: Report, ended: Sequence[Ended]) -> Iterator[str]:
    """What changed between two reports, where there is no terminal."""
    at = words.clock(after.written_at)
    known = before.jobs if before else {}
    for over in ended:
        yield f"{at} {over.name} is over: {over.phase}"
    for name, one in after.jobs.items():
        old = known.get(name)
        if old is None or old.given != one.given:
            yield f"{at} {name} {_became(old, one)}"
    was_in_trouble = before.trouble if before else ""
    if after.trouble != was_in_trouble:
        failed = f"policy {after.policy} failed, the last plan stays: {after.trouble}"
        yield f"{at} {failed if after.trouble else f'policy {after.policy} decides again'}"


def _became(old: Standing | None, one: Standing) -> str:
    count = f"{one.workers} worker{'s' * (one.workers != 1)}"
    if one.is_waiting:
        return f"{'is suspended' if one.account.launches else 'is queued'}: {queued.explain(one)}"
    if old is None or old.is_waiting:
        # The launch that is under way counts already, unless its devices are not there yet.
        launches_before = one.account.launches - (one.state is State.RUNNING)
        return f"{'goes on' if launches_before else 'starts'} with {count}: {one.reason}"
    return f"{old.workers} → {count}: {one.reason}"
