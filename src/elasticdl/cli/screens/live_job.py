"""Shows a running job: redrawn in a terminal, as lines elsewhere."""

from __future__ import annotations

import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from elasticdl.cli.screens import job_panel
from elasticdl.cli.screens.plain_lines import LineSchedule
from elasticdl.jobs.job_status import JobStatus

PROGRESS_INTERVAL_S = 2.0  # between two lines of progress


class JobScreen:
    """Shows statuses and notices. A terminal that is gone is not an error: the job goes on without it."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console = console
        self._live = live
        self._lines = LineSchedule(PROGRESS_INTERVAL_S)
        self._status: JobStatus | None = None
        self._notice = ""  # about what the user asked for
        self._away = ""  # the master does not answer
        self._lock = threading.Lock()

    @classmethod
    @contextmanager
    def open(cls, console: Console) -> Iterator[JobScreen]:
        with open_live(console) as live:
            yield cls(console, live)

    def show(self, status: JobStatus, now: float) -> None:
        with self._lock:
            self._status, self._away = status, ""
            if self._live:
                self._draw()
            else:
                for line in self._lines.due_lines(status, now):
                    self._print(line)

    def show_output_line(self, line: str) -> None:
        """A line of the user's code, above the view; it stays."""
        with self._lock:
            self._print(line)

    def show_notice(self, notice: str) -> None:
        with self._lock:
            self._notice = notice
            self._draw() if self._live else self._print(notice)

    def show_master_away(self, was_there: bool, reason: str = "") -> None:
        """Says that the master does not answer (yet), once, until it is back or another reason is known."""
        away = "master restarting… the workers train on meanwhile" if was_there else "master starting…"
        with self._lock:
            if self._away.startswith(away) and (not reason or reason in self._away):
                return
            self._away = f"{away} ({reason})" if reason else away
            self._draw() if self._live else self._print(self._away)

    def _draw(self) -> None:
        assert self._live is not None
        is_over = self._status is not None and self._status.is_over
        notice = "" if is_over else "\n".join(part for part in (self._away, self._notice) if part)
        view = job_panel.job_panel(self._status, notice) if self._status is not None else Text(notice or "starting…")
        update_live(self._live, view)

    def _print(self, line: str) -> None:
        print_line(self._console, line)


@contextmanager
def open_live(console: Console) -> Iterator[Live | None]:
    """Yields a view to update; None if the output is no terminal, and lines are to be printed."""
    if not console.is_terminal:
        yield None
        return
    # The last view stays. Each change is drawn at once, so rich's own refresh thread is not needed.
    with (
        hide_control_characters(),
        Live(Text("starting…"), console=console, auto_refresh=False, transient=False) as live,
    ):
        yield live


def update_live(live: Live, view: RenderableType) -> None:
    """Draws the view; does nothing from now on if the terminal is gone."""
    try:
        live.update(view, refresh=True)
    except OSError:
        live.console.quiet = True


def print_line(console: Console, line: str) -> None:
    """Prints a line as it is; does nothing from now on if the terminal is gone."""
    try:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    except OSError:
        console.quiet = True


@contextmanager
def hide_control_characters() -> Iterator[None]:
    """Keeps the terminal from writing `^C` itself, which would move the view by a line."""
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, AttributeError, termios.error):  # no terminal to type at
        yield
        return
    modes = list(before)
    modes[3] &= ~termios.ECHOCTL
    termios.tcsetattr(descriptor, termios.TCSADRAIN, modes)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
