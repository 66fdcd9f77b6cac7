"""events.jsonl: which workers joined or left, when, why, and what that cost. For users and `elasticdl status`.

Entries are numbered. A restarted master counts the existing lines and writes the missing ones, so that no line is
duplicated or lost.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from elasticdl.master.machine.actions import WriteLogEntry


def count_entries(path: Path) -> int:
    """The number of complete lines in an event log; 0 if there is no file."""
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


class EventLog:
    """The event log of a job, between `open` and `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self.written = 0  # number of the last entry in the file

    def open(self) -> None:
        """Opens the file, counts its entries and removes an incomplete last line."""
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        content = self._path.read_bytes()
        complete_bytes = content.rfind(b"\n") + 1
        os.ftruncate(self._descriptor, complete_bytes)
        os.lseek(self._descriptor, 0, os.SEEK_END)
        self.written = content.count(b"\n")

    def write(self, actions: list[WriteLogEntry]) -> None:
        """Writes the entries that are not in the file yet. On OSError it writes none: no line may be incomplete."""
        missing = [action for action in actions if action.number > self.written]
        if not missing:
            return
        unwritten = "".join(json.dumps(action.entry.to_document()) + "\n" for action in missing).encode()
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        try:
            while unwritten:  # an almost full disk takes a part; only the next write fails
                unwritten = unwritten[os.write(self._descriptor, unwritten) :]
        except OSError:
            os.ftruncate(self._descriptor, end)
            os.lseek(self._descriptor, end, os.SEEK_SET)
            raise
        self.written = missing[-1].number

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
