"""What happens to a job, as a queue of news for whoever shows it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from queue import SimpleQueue

from elasticdl.cli import resumed
from elasticdl.cli.interface import Watched
from elasticdl.errors import ElasticDLError, MasterUnreachable
from elasticdl.rpc import elasticdl_pb2 as pb

AWAY_S = 0.7  # a master that does not answer for so long is said to be away
GONE = "its processes are gone and left no result"
START_S = 60.0  # a master takes seconds to start; on a machine that starts many at once, more


@dataclass(frozen=True, slots=True)
class Changed:
    status: pb.JobStatus


@dataclass(frozen=True, slots=True)
class MasterAway:
    why: str = ""


@dataclass(frozen=True, slots=True)
class Over:
    """The result is written, or nobody is left to write one; `problem` says why the job cannot be watched."""

    problem: str = ""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A signal to the viewer."""

    number: int


News = Changed | MasterAway | Over | Interrupted


def follow(watched: Watched, news: SimpleQueue[News], max_hz: float) -> threading.Thread:
    """Feed `news` from a thread of its own until the job is over. It ends with the process."""
    thread = threading.Thread(target=_follow, args=(watched, news, max_hz), name="feed", daemon=True)
    thread.start()
    return thread


def _follow(watched: Watched, news: SimpleQueue[News], max_hz: float) -> None:
    try:
        news.put(Over(_until_over(watched, news, max_hz)))
    except ElasticDLError as exc:
        news.put(Over(str(exc)))


def _until_over(watched: Watched, news: SimpleQueue[News], max_hz: float) -> str:
    """Why there is no result; "" if there is one."""
    from elasticdl.rpc.client import MasterClient

    directory = watched.directory
    earlier = resumed.read_earlier(directory)
    while not directory.result.exists():
        try:
            with MasterClient.connect(directory, timeout_s=AWAY_S) as client:
                for status in client.watch(max_hz):
                    news.put(Changed(resumed.with_earlier(status, earlier)))
            watched.is_alive()  # brings the result of a job that runs elsewhere
        except MasterUnreachable:
            if not watched.is_alive():
                return "" if directory.result.exists() else watched.why_away() or GONE
            news.put(MasterAway(watched.why_away()))
    return ""
