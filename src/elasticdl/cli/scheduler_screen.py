"""Where the scheduler is shown: redrawn in a terminal, in lines elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from elasticdl.cli import scheduler_view
from elasticdl.cli.screen import draw, opened, say
from elasticdl.scheduler.local.events import Ended
from elasticdl.scheduler.local.standing import Report

ENDED = 5  # how many jobs that are over are shown
FRAME = 14  # lines of the picture beside its jobs, with some that are too long


class Screen:
    """Shows reports and notices. A terminal that went away is not an error."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console = console
        self._live = live
        self._report: Report | None = None
        self._ended: deque[Ended] = deque(maxlen=ENDED)
        self._notice = ""

    @classmethod
    @contextmanager
    def open(cls) -> Iterator[Screen]:
        console = Console()
        with opened(console) as live:
            yield cls(console, live)

    def show(self, report: Report, ended: list[Ended]) -> None:
        before, self._report = self._report, report
        self._ended.extend(ended)
        if self._live:
            self._draw()
        else:
            for line in scheduler_view.lines(before, report, ended):
                self._print(line)

    def say(self, notice: str) -> None:
        self._notice = notice
        self._draw() if self._live else self._print(notice)

    def _draw(self) -> None:
        assert self._live is not None
        report, notice = self._report, self._notice
        most = max(self._console.height - FRAME, 3)
        picture = scheduler_view.picture(report, list(self._ended), notice, most) if report else Text(notice)
        draw(self._live, picture)

    def _print(self, line: str) -> None:
        say(self._console, line)
