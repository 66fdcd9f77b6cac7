"""The panel that shows a job to a user."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest
from rich.console import Console, RenderableType

from elasticdl.cli.screens import job_panel, plain_lines
from elasticdl.jobs import formatting
from elasticdl.jobs.job_status import JobEvent, JobStatus
from elasticdl.rpc import elasticdl_pb2 as pb

# fmt: off
GOLDEN = """\
╭─ digits  running  round 3  12 s ─────────────────────────────────────────────────────────────────╮
│ records ━━━━━━━━━━━━━━━╸━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 1,920 of 5,391  step 30 of 85               │
│  epochs ━━━━━━━━━━━━━━━╸━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 2 of 3                                      │
│ loss 0.2500   evaluation of step 29 accuracy 0.9150   speed 1,157 records/s   to go 3.0 s        │
│ checkpoint step 20                                                                               │
│                                                                                                  │
│ 2 workers, 2 desired, 1 to 4 allowed                                                             │
│ worker    pid  state     since  rank  logical ranks  step                                        │
│ worker-1   12  lost      4.0 s                                                                   │
│ worker-0   11  member     10 s     0              2    30                                        │
│ worker-2   13  starting  3.5 s                                                                   │
│                                                                                                  │
│ time      event          replica   reason     cost                                               │
│ 00:16:42  worker-joined  worker-0                                                                │
│ 00:16:48  worker-lost    worker-1  SIGKILL  180 ms                                               │
│                                                                                                  │
│ master restarting…                                                                               │
╰──────────────────────────────────────────────────────────────────────────────────────────────────╯
"""
# fmt: on


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def text(renderable: RenderableType, width: int = 100) -> str:
    console = Console(file=io.StringIO(), record=True, width=width, force_terminal=True)
    console.print(renderable)
    return "".join(line.rstrip() + "\n" for line in console.export_text().splitlines())


def value(message: pb.JobStatus) -> JobStatus:
    return JobStatus.from_message(message, "here")


def test_the_panel_of_a_running_job_matches_the_recorded_text(status: pb.JobStatus) -> None:
    assert text(job_panel.job_panel(value(status), "master restarting…")) == GOLDEN


def test_a_job_that_has_just_started_can_be_drawn() -> None:
    assert "0 workers" in text(
        job_panel.job_panel(value(pb.JobStatus(name="digits", phase="pending", checkpoint_step=-1)))
    )


def test_only_the_newest_events_and_the_last_workers_that_left_are_shown(status: pb.JobStatus) -> None:
    status.workers.extend(pb.WorkerStatus(id=f"gone-{number}", state="left", rank=-1) for number in range(9))
    status.events.extend(pb.EventStatus(at=1009, kind=f"event-{number}") for number in range(20))

    shown = text(job_panel.job_panel(value(status)))

    assert [number for number in range(9) if f"gone-{number}" in shown] == [6, 7, 8]
    assert "event-19" in shown and "event-12" in shown and "event-11 " not in shown


def test_evaluations_do_not_hide_a_lost_worker(status: pb.JobStatus) -> None:
    for number in range(50):
        status.events.append(
            pb.EventStatus(at=1010 + number, kind="evaluation", reason=f"accuracy {number}", step=number)
        )
        status.events.append(pb.EventStatus(at=1010 + number, kind="checkpoint", step=number))

    shown = text(job_panel.events_table(value(status)))

    assert "worker-lost" in shown and "worker-joined" in shown
    assert "accuracy 49" in shown and "accuracy 48" in shown and "accuracy 46" not in shown


def test_without_other_events_evaluations_fill_the_panel() -> None:
    evaluations = [JobEvent(float(number), "evaluation") for number in range(9)]

    assert job_panel.choose_events(evaluations, 4) == evaluations[-4:]
    assert job_panel.choose_events([], 4) == []


def test_an_evaluation_shows_its_shards(status: pb.JobStatus) -> None:
    status.kind, status.shards_done, status.shards = "evaluation", 3, 7

    assert "shards" in text(job_panel.progress_bars(value(status)))
    assert "3 of 7" in text(job_panel.progress_bars(value(status)))


def test_a_failed_job_shows_why(status: pb.JobStatus) -> None:
    status.phase, status.reason = "failed", "the loss became NaN in step 31, logical rank 2"

    assert "NaN in step 31, logical rank 2" in text(job_panel.job_panel(value(status)))


def test_without_a_terminal_progress_is_one_line(status: pb.JobStatus) -> None:
    assert plain_lines.progress_line(value(status)) == (
        "00:16:52 digits running: 1,920 of 5,391 records, epoch 2 of 3, step 30 of 85, loss 0.2500, "
        "accuracy 0.9150 at step 29, 1,157 records/s, 2 workers, 3.0 s to go"
    )


def test_without_a_terminal_an_event_is_one_line_with_reason_and_cost(status: pb.JobStatus) -> None:
    assert plain_lines.event_line(value(status).events[1]) == "00:16:48 worker-1 lost: SIGKILL (step 18, cost 180 ms)"


def test_each_event_is_printed_once_and_progress_at_intervals(status: pb.JobStatus) -> None:
    lines = plain_lines.LineSchedule(every_s=2.0)

    first, second, third = (list(lines.due_lines(value(status), now)) for now in (10.0, 11.9, 12.0))

    assert len(first) == 3
    assert second == []
    assert third == [plain_lines.progress_line(value(status))]


def test_the_end_is_printed_at_once(status: pb.JobStatus) -> None:
    lines = plain_lines.LineSchedule(every_s=1000.0)
    list(lines.due_lines(value(status), 10.0))
    status.phase = "succeeded"

    assert len(list(lines.due_lines(value(status), 10.1))) == 1


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-1.0, "0.0 s"), (3.21, "3.2 s"), (42.4, "42 s"), (59.9, "1:00"), (65.0, "1:05"), (7384.0, "2:03:04")],
)
def test_durations_are_formatted_in_readable_units(seconds: float, expected: str) -> None:
    assert formatting.format_duration(seconds) == expected


def test_ps_are_shown_with_their_state_and_their_load(status: pb.JobStatus) -> None:
    assert " ps," not in text(job_panel.job_panel(value(status))), "a job without ps has nothing to tell"
    beat = pb.PsHeartbeat(rows=120_000, bytes=3 << 20, lock_wait_s=0.25, staleness=[1, 2, 9])
    status.ps.add(id="ps-0", pid=21, state="serving", since=1002, slots=512, backup="ps-1", requests_per_s=1234)
    status.ps[0].heartbeat.CopyFrom(beat)
    status.ps.add(id="ps-1", state="lost", since=1010, reason="preempted")
    status.desired_ps, status.ps_mode = 2, "hybrid"

    shown = text(job_panel.ps_table(value(status)))

    heading, _, lost, serving = (line.split() for line in shown.splitlines())
    assert heading == ["1", "ps,", "2", "desired,", "hybrid"]
    assert lost[:2] == ["ps-1", "lost"]
    assert serving == [
        "ps-0",
        "21",
        "serving",
        "10",
        "s",
        "512",
        "120,000",
        "3.0",
        "MiB",
        "1,234",
        "0.25",
        "s",
        "2-3",
        "ps-1",
    ]
    assert "2 workers, 1 ps" in plain_lines.progress_line(value(status))


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (2 << 40, "2,048.0 GiB")],
)
def test_a_size_is_printed_in_a_fitting_unit(size: int, expected: str) -> None:
    assert formatting.format_bytes(size) == expected


def test_a_ps_lost_is_one_line() -> None:
    event = JobEvent(1008.0, "ps-lost", "ps-1", "preempted: killed by SIGKILL")

    assert plain_lines.event_line(event) == "00:16:48 ps-1 lost: preempted: killed by SIGKILL"
