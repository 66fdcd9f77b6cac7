"""Stays with a job in the terminal until it is over: shows it, passes signals on, returns its exit code."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import FrameType

from rich.console import Console

from elasticdl.cli.screens import job_summary
from elasticdl.cli.screens.live_job import JobScreen
from elasticdl.errors import ElasticDLError
from elasticdl.jobs import timeline, watch
from elasticdl.jobs.interface import WatchedJob
from elasticdl.jobs.user_output import FirstWorkerOutput
from elasticdl.spec.directory import JobDirectory, read_json

EXIT_INTERRUPTED = 130
STATUS_HZ = 4.0
OUTPUT_POLL_S = 0.2  # between two looks at what the first worker printed

_STOPPING_NOTICE = "stopping: the running step ends, a checkpoint is written. Ctrl-C again kills all processes at once"


def attach_terminal(watched: WatchedJob, console: Console) -> int:
    """Shows the job until it is over; returns its exit code. Ctrl-C stops it with a checkpoint, a second kills it."""
    news: SimpleQueue[watch.WatchEvent] = SimpleQueue()
    prints = FirstWorkerOutput(watched.open_log)
    with _signals_as_events(news), JobScreen.open(console) as screen:
        watch.start_watching(watched, news, STATUS_HZ)
        code = show_until_over(watched, news, screen, prints)
        for line in prints.read_new_lines(time.monotonic(), is_last=True):
            screen.show_output_line(line)
    if code == EXIT_INTERRUPTED and not watched.directory.result.exists():
        console.print(watched.kill(), highlight=False, markup=False, soft_wrap=True)
        return EXIT_INTERRUPTED
    watched.await_exit()
    if watched.local_directory is not None:
        # matplotlib takes a second to import and may lack its cache directory; the job is over all the same.
        timeline.try_draw_timeline(watched.local_directory)
    job_summary.print_summary(watched.final_status(), watched.local_directory, console)
    return code


def show_until_over(
    watched: WatchedJob,
    news: SimpleQueue[watch.WatchEvent],
    screen: JobScreen,
    prints: FirstWorkerOutput,
) -> int:
    """Show the news and the prints until the job is over; STOPPED before that is a second Ctrl-C."""
    directory = watched.directory
    interrupts = 0
    was_there = False
    while True:
        item = _next_event(news)
        for line in prints.read_new_lines(time.monotonic()):
            screen.show_output_line(line)
        match item:
            case watch.StatusChanged(status):
                was_there = True
                for line in prints.update_first_worker(status, time.monotonic()):
                    screen.show_output_line(line)
                screen.show(status, time.time())
            case watch.MasterUnresponsive(why):
                if watched.has_failed_to_start():
                    raise ElasticDLError(f"the launcher ended at once; see {directory.log_file('launcher')}")
                screen.show_master_away(was_there or watched.has_started(), why)
            case watch.WatchEnded(problem):
                result = read_json(directory.result)
                if result is None:
                    raise ElasticDLError(f"lost sight of the job: {problem}; see {watched.logs_hint()}")
                return int(result.get("exit_code", 1))
            case watch.SignalReceived(number):
                interrupts += number == signal.SIGINT
                if interrupts > 1:
                    return EXIT_INTERRUPTED
                screen.show_notice(_STOPPING_NOTICE)
                threading.Thread(target=_request_stop, args=(directory, screen, number), daemon=True).start()


def _next_event(news: SimpleQueue[watch.WatchEvent]) -> watch.WatchEvent | None:
    """None where nothing has happened for a while: it is time to look for prints."""
    try:
        return news.get(timeout=OUTPUT_POLL_S)
    except Empty:
        return None


def _request_stop(directory: JobDirectory, screen: JobScreen, number: int) -> None:
    try:
        watch.request_stop(directory, f"{signal.Signals(number).name} at the command line")
    except ElasticDLError as exc:
        screen.show_notice(f"cannot be stopped cleanly: {exc}. Ctrl-C again kills all processes at once")


@contextmanager
def _signals_as_events(news: SimpleQueue[watch.WatchEvent]) -> Iterator[None]:
    """While open, signals become news."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        # SimpleQueue.put may be called from a handler that interrupts a get of the same queue.
        news.put(watch.SignalReceived(number))

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
