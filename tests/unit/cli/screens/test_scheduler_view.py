"""The view of the scheduler: pure functions of its reports."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

from rich.console import Console

from elasticdl.cli.screens import scheduler_panel as view
from elasticdl.scheduler.accounts.events import JobExited
from elasticdl.scheduler.accounts.report import JobAccount, ScheduledJobState, ScheduledJobStatus, SchedulerReport

RUNNING = ScheduledJobStatus(
    ScheduledJobState.RUNNING,
    {"here": 3},
    4,
    "all that is free",
    account=JobAccount(launches=1, step=30, total_steps=60, attained_s=90),
)
WAITING = ScheduledJobStatus(ScheduledJobState.WAITING, {}, 4, "others were first", 65.0, priority=1)


def report(trouble: str = "", **jobs: ScheduledJobStatus) -> SchedulerReport:
    return SchedulerReport(1000.0, "goodput", {"here": 4}, trouble, jobs)


def draw(shown: SchedulerReport, *ended: JobExited) -> str:
    console = Console(width=140, record=True, file=StringIO())
    console.print(view.scheduler_panel(shown, ended))
    return console.export_text()


def describe_changes(before: SchedulerReport | None, after: SchedulerReport, *ended: JobExited) -> list[str]:
    return [line.partition(" ")[2] for line in view.change_lines(before, after, ended)]


def test_the_table_shows_workers_progress_wait_times_and_reasons() -> None:
    text = draw(report(a=RUNNING, b=WAITING), JobExited("c", "succeeded"))

    assert "3 of 4, 1 job with workers, 1 waiting" in text
    rows = [line.split() for line in text.splitlines() if "others" in line or "all that" in line]
    assert rows[0][1:8] == ["a", "running", "3", "of", "4", "50%", "0"]
    assert rows[1][1:9] == ["b", "waiting", "0", "of", "4", "1", "0.0", "s"]
    assert "1:05" in text
    assert "c succeeded" in text


def test_a_policy_that_failed_is_shown() -> None:
    assert "the last plan stays: ZeroDivisionError" in draw(report("ZeroDivisionError", a=RUNNING))


def test_an_empty_scheduler_explains_how_to_submit_jobs() -> None:
    assert "elasticdl train --queue" in draw(report())


def test_each_change_is_printed_as_a_line() -> None:
    more = replace(RUNNING, allocated={"here": 4}, reason="all of it")
    suspended = replace(RUNNING, state=ScheduledJobState.SUSPENDING, allocated={}, reason="others are greater")

    assert describe_changes(None, report(a=RUNNING)) == ["a starts with 3 workers: all that is free"]
    assert describe_changes(report(), report(b=WAITING)) == ["b is queued: others were first; room expected in 1:05"]
    assert describe_changes(report(a=RUNNING), report(a=RUNNING)) == []
    assert describe_changes(report(a=RUNNING), report(a=more)) == ["a 3 → 4 workers: all of it"]
    assert describe_changes(report(a=RUNNING), report(a=suspended)) == [
        "a is suspended: others are greater; room: wait unknown"
    ]
    again = replace(RUNNING, account=JobAccount(launches=2))
    assert describe_changes(report(a=suspended), report(a=again)) == ["a goes on with 3 workers: all that is free"]
    assert describe_changes(report(a=RUNNING), report(), JobExited("a", "failed")) == ["a is over: failed"]
    assert describe_changes(report(), report("KeyError")) == ["policy goodput failed, the last plan stays: KeyError"]
    assert describe_changes(report("KeyError"), report()) == ["policy goodput decides again"]


def test_jobs_beyond_the_screen_are_counted() -> None:
    console = Console(width=140, record=True, file=StringIO())
    many: dict[str, Any] = {f"job-{index}": RUNNING for index in range(9)}
    console.print(view.scheduler_panel(report(**many), [], max_rows=4))
    text = console.export_text()

    assert "job-3" in text and "job-4" not in text
    assert "and 5 more" in text
