"""What the user's code prints in the first worker, for the terminal of the command that runs the job.

The first worker is rank 0 of the round; before the first round, the oldest worker. When another becomes the first, its
lines are shown from where it entered that round: whatever it printed before, the earlier first worker printed as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from elasticdl.jobs.job_status import JobStatus, WorkerStatus

# A line of elasticdl.log. Errors are shown: they come with the traceback of the user's code.
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \S+-\d+ (DEBUG|INFO|WARNING) ")
_RANK_0_LINE = re.compile(r" INFO round (\d+): rank 0 of ")
# If the log has no rounds (--log_level=WARNING), lines are shown this long after another worker became the first.
SKIP_S = 1.0


class GrowingLog(Protocol):
    """The log of a worker, read as it grows."""

    def read_new_lines(self, *, is_last: bool = False) -> Iterable[str]:
        """The lines since the last call; with `is_last` all that is left."""
        ...


class FirstWorkerOutput:
    """The lines that the first worker prints. Not for several threads."""

    def __init__(self, open_log: Callable[[str], GrowingLog]) -> None:
        self._open_log = open_log
        self._logs: dict[str, GrowingLog] = {}
        self._worker = ""
        self._round = 0
        self._skip_until: float | None = None  # None: nothing is left out

    def update_first_worker(self, status: JobStatus, now: float) -> list[str]:
        """Learns from `status` which worker is the first. If that changes, returns the last lines of the one before."""
        first = _first_worker(status)
        if first is None or first.name == self._worker:
            return []
        is_alive = any(worker.name == self._worker and worker.is_alive for worker in status.workers)
        if is_alive and first.rank is None:
            return []  # no round says that another is the first
        left = list(self.read_new_lines(now))
        self._skip_until = now + SKIP_S if self._worker else None
        self._worker, self._round = first.name, status.round
        if first.name not in self._logs:
            self._logs[first.name] = self._open_log(first.name)
        return left

    def read_new_lines(self, now: float, *, is_last: bool = False) -> Iterator[str]:
        """What was printed since the last call."""
        if not self._worker:
            return
        for line in self._logs[self._worker].read_new_lines(is_last=is_last):
            if self._skip_until is not None:
                entered = _RANK_0_LINE.search(line)
                if entered is not None and int(entered[1]) >= self._round:
                    self._skip_until = None
                elif now >= self._skip_until:
                    self._skip_until = None
                    yield from _visible_line(line)
                continue
            yield from _visible_line(line)


def _first_worker(status: JobStatus) -> WorkerStatus | None:
    """Rank 0 of the round; before there is one, the oldest worker that has started."""
    living = [worker for worker in status.workers if worker.is_alive and worker.state != "launching"]
    return next((worker for worker in living if worker.rank == 0), living[0] if living else None)


def _visible_line(line: str) -> Iterator[str]:
    """The line as a terminal shows it, unless it is one of our own log."""
    if not _LOG_LINE.match(line):
        # A progress bar overwrites its line: the last state is what stays.
        yield line.rstrip("\r").rpartition("\r")[2]
