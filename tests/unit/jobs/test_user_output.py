"""The output of the first worker: which worker and which lines are shown, each line once."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from elasticdl.cli.screens.live_job import JobScreen
from elasticdl.jobs.job_status import JobStatus
from elasticdl.jobs.local import GrowingFile
from elasticdl.jobs.user_output import SKIP_S, FirstWorkerOutput
from elasticdl.rpc import elasticdl_pb2 as pb

NOW = 100.0


class Logs:
    """Logs of workers in a directory, written by hand."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, worker: str) -> GrowingFile:
        return GrowingFile(self.directory / worker)

    def write(self, worker: str, *lines: str) -> None:
        with (self.directory / worker).open("a") as file:
            file.writelines(f"{line}\n" for line in lines)


def own(worker: str, message: str, level: str = "INFO") -> str:
    return f"2026-11-18 02:10:02,301 {worker} {level} {message}"


def status(round_: int, *workers: tuple[str, str, int]) -> JobStatus:
    members = [pb.WorkerStatus(id=name, state=state, rank=rank) for name, state, rank in workers]
    return JobStatus.from_message(pb.JobStatus(round=round_, workers=members), "here")


def read_output(prints: FirstWorkerOutput, now: float = NOW) -> list[str]:
    lines: Iterator[str] = prints.read_new_lines(now)
    return list(lines)


def test_nothing_is_printed_before_the_first_worker_exists(tmp_path: Path) -> None:
    prints = FirstWorkerOutput(Logs(tmp_path).open)
    prints.update_first_worker(status(0), NOW)
    prints.update_first_worker(status(0, ("worker-0", "launching", -1)), NOW)

    assert read_output(prints) == []


def test_user_output_is_lines_outside_our_log_and_errors(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    prints = FirstWorkerOutput(logs.open)
    prints.update_first_worker(status(0, ("worker-0", "starting", -1)), NOW)
    logs.write("worker-0", "loading", own("worker-0", "round 1: rank 0 of 2"), "epoch 1", "10%\r50%\r100%")
    logs.write("worker-0", own("worker-0", "Traceback (most recent call last):", "ERROR"), "  line 3")

    shown = read_output(prints)

    assert shown[:3] == ["loading", "epoch 1", "100%"]
    assert shown[3].endswith("ERROR Traceback (most recent call last):")
    assert shown[4] == "  line 3"
    assert read_output(prints) == []


def test_only_rank_0_is_shown(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    prints = FirstWorkerOutput(logs.open)
    prints.update_first_worker(status(1, ("worker-0", "member", 0), ("worker-1", "member", 1)), NOW)
    logs.write("worker-0", "mine")
    logs.write("worker-1", "not shown")

    assert read_output(prints) == ["mine"]


def test_the_output_of_a_replacement_of_the_first_worker_is_shown_from_its_round_on(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    prints = FirstWorkerOutput(logs.open)
    prints.update_first_worker(status(1, ("worker-0", "member", 0), ("worker-1", "member", 1)), NOW)
    logs.write("worker-0", "loading", "epoch 1")
    logs.write("worker-1", "loading", own("worker-1", "round 1: rank 1 of 2"), "epoch 1")
    assert read_output(prints) == ["loading", "epoch 1"]
    logs.write("worker-0", "epoch 2")
    logs.write("worker-1", "epoch 2", own("worker-1", "round 2: rank 0 of 1"), "epoch 3")

    last_lines = prints.update_first_worker(status(2, ("worker-0", "lost", -1), ("worker-1", "member", 0)), NOW)

    assert last_lines == ["epoch 2"]
    assert read_output(prints) == ["epoch 3"]


def test_a_log_without_rounds_is_shown_after_a_delay(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    prints = FirstWorkerOutput(logs.open)
    prints.update_first_worker(status(1, ("worker-0", "member", 0), ("worker-1", "member", 1)), NOW)
    logs.write("worker-1", "epoch 1")
    prints.update_first_worker(status(2, ("worker-1", "member", 0)), NOW)
    assert read_output(prints) == []

    logs.write("worker-1", "epoch 2", "epoch 3")

    assert read_output(prints, NOW + SKIP_S) == ["epoch 2", "epoch 3"]


def test_until_a_round_is_entered_the_first_worker_is_shown(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    prints = FirstWorkerOutput(logs.open)
    prints.update_first_worker(status(0, ("worker-1", "starting", -1)), NOW)
    prints.update_first_worker(status(0, ("worker-0", "starting", -1), ("worker-1", "starting", -1)), NOW)
    logs.write("worker-1", "loading")

    assert read_output(prints) == ["loading"]


def test_without_rounds_the_next_worker_is_shown_after_the_first_ended(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    prints = FirstWorkerOutput(logs.open)
    prints.update_first_worker(status(0, ("worker-0", "member", -1), ("worker-1", "member", -1)), NOW)
    prints.update_first_worker(status(0, ("worker-0", "lost", -1), ("worker-1", "member", -1)), NOW)
    logs.write("worker-1", "shard 7")

    assert read_output(prints, NOW + SKIP_S) == ["shard 7"]


def test_user_output_is_printed_above_the_panel_of_a_terminal() -> None:
    shown = io.StringIO()
    with JobScreen.open(Console(file=shown, force_terminal=True, width=80)) as screen:
        screen.show_output_line("epoch 1: [bold]loss[/bold] 0.5")
        screen.show_notice("stopping")

    text = shown.getvalue()
    assert text.index("epoch 1: [bold]loss[/bold] 0.5") < text.index("stopping")


def test_without_a_terminal_user_output_is_plain_lines() -> None:
    shown = io.StringIO()
    with JobScreen.open(Console(file=shown, width=40)) as screen:
        screen.show_output_line("a line that is longer than the forty columns of this console")

    assert shown.getvalue() == "a line that is longer than the forty columns of this console\n"
