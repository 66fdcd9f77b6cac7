"""How an engine at work looks: its own lines, and below them, in a terminal, what it is at and since when."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from elasticdl.cli.command import nearest
from elasticdl.errors import SpecError
from elasticdl.image.engine import ENGINES, Engine, find


def engine_named(name: str | None) -> Engine:
    """The engine asked for, or the first that answers."""
    if name is not None and name not in ENGINES:
        near = nearest(name, ENGINES)
        raise SpecError(f"--engine {name}: expected {', '.join(ENGINES[:-1])} or {ENGINES[-1]}{near}")
    return find(name or "")


@contextmanager
def showing(what: str) -> Iterator[Callable[[str], None]]:
    """Gives what to call with each line. SIGTERM ends the command as Ctrl-C does, so that nothing is left behind."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    try:
        if not console.is_terminal:
            console.print(what, markup=False)
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            progress.add_task(what, total=None)
            yield lambda line: progress.console.print(line, style="bright_black", markup=False)
    finally:
        signal.signal(signal.SIGTERM, before)
