"""What happens to a job, as a queue of events for what shows it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from queue import SimpleQueue

from elasticdl.errors import ElasticDLError, MasterUnreachable
from elasticdl.jobs import history
from elasticdl.jobs.interface import THIS_MACHINE, WatchedJob
from elasticdl.jobs.job_status import JobStatus
from elasticdl.spec.directory import JobDirectory

ANSWER_TIMEOUT_S = 0.7  # a master that does not answer for so long is reported as unresponsive
PROCESSES_GONE = "its processes are gone and left no result"
STOP_TIMEOUT_S = 30.0  # a master that restarts hears of the stop by then
MASTER_START_TIMEOUT_S = 60.0  # a master takes seconds to start; on a machine that starts many at once, more


@dataclass(frozen=True, slots=True)
class StatusChanged:
    status: JobStatus


@dataclass(frozen=True, slots=True)
class MasterUnresponsive:
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """The result is written, or no process is left to write one; `problem` says why the job cannot be watched."""

    problem: str = ""


@dataclass(frozen=True, slots=True)
class SignalReceived:
    """A signal to the viewer."""

    number: int


WatchEvent = StatusChanged | MasterUnresponsive | WatchEnded | SignalReceived


def start_watching(watched: WatchedJob, news: SimpleQueue[WatchEvent], max_hz: float) -> threading.Thread:
    """Feed `news` from a thread of its own until the job is over. It ends with the process."""
    thread = threading.Thread(target=_watch, args=(watched, news, max_hz), name="feed", daemon=True)
    thread.start()
    return thread


def _watch(watched: WatchedJob, news: SimpleQueue[WatchEvent], max_hz: float) -> None:
    try:
        news.put(WatchEnded(_watch_until_over(watched, news, max_hz)))
    except ElasticDLError as exc:
        news.put(WatchEnded(str(exc)))


def _watch_until_over(watched: WatchedJob, news: SimpleQueue[WatchEvent], max_hz: float) -> str:
    """Why there is no result; "" if there is one."""
    from elasticdl.rpc.client import MasterClient

    directory = watched.directory
    earlier = history.read_earlier_run(directory)
    while not directory.result.exists():
        try:
            with MasterClient.connect(directory, timeout_s=ANSWER_TIMEOUT_S) as client:
                for status in client.watch(max_hz):
                    message = history.add_earlier_run(status, earlier)
                    news.put(StatusChanged(JobStatus.from_message(message, THIS_MACHINE)))
            watched.is_alive()  # brings the result of a job that runs elsewhere
        except MasterUnreachable:
            if not watched.is_alive():
                return "" if directory.result.exists() else watched.unreachable_reason() or PROCESSES_GONE
            news.put(MasterUnresponsive(watched.unreachable_reason()))
    return ""


def request_stop(directory: JobDirectory, reason: str) -> None:
    """Asks the master of a watched job to stop it with a checkpoint."""
    from elasticdl.rpc.client import MasterClient

    with MasterClient.connect(directory, timeout_s=STOP_TIMEOUT_S) as client:
        client.stop(at_once=False, reason=reason)
