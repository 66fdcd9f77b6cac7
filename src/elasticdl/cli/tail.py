"""What the processes of a job on this machine write, as it comes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from elasticdl.cli import home
from elasticdl.spec.directory import JobDirectory

POLL_S = 0.2


def lines(directory: JobDirectory, replica: str, follow: bool) -> Iterator[tuple[str, str]]:
    """Writer and line, of one replica or of all; with `follow` until the job is over."""
    tails: dict[Path, Tail] = {}
    while True:
        # Asked before reading: what was written until then will be read.
        is_over = not follow or not home.is_starting_or_alive(directory)
        for path in [directory.log(replica)] if replica else sorted(directory.logs.glob("*.log")):
            tail = tails.setdefault(path, Tail(path))
            for line in tail.lines(is_last=is_over):
                yield path.stem, line
        if is_over:
            return
        time.sleep(POLL_S)


class Tail:
    """The lines a growing file has had since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = b""

    def lines(self, *, is_last: bool = False) -> Iterator[str]:
        """Whole lines; with `is_last` also an unfinished one."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            new = b""
        self._read += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        if is_last and self._rest:
            whole, self._rest = [*whole, self._rest], b""
        for line in whole:
            yield line.decode(errors="replace")
