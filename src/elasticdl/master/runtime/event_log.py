"""events.jsonl: who joined or left when, why, and what it cost. For people and `elasticdl status`.

Entries are numbered. A restarted master counts the lines that are there and writes only what is missing, so
the log has no line twice and none too few.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from elasticdl.master.machine.actions import WriteLogEntry


def count_entries(path: Path) -> int:
    """The whole lines of an event log; 0 where there is none."""
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


class EventLog:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self.written = 0

    def open(self) -> None:
        """Find out how far an earlier master got; cut off a torn last line."""
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        content = self._path.read_bytes()
        whole = content.rfind(b"\n") + 1
        os.ftruncate(self._descriptor, whole)
        os.lseek(self._descriptor, 0, os.SEEK_END)
        self.written = content.count(b"\n")

    def write(self, actions: list[WriteLogEntry]) -> None:
        """All of them, or OSError and none: half a line would spoil the next."""
        new = [action for action in actions if action.number > self.written]
        if not new:
            return
        left = "".join(json.dumps(action.entry.to_document()) + "\n" for action in new).encode()
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        try:
            while left:  # a disk that is getting full takes a part, and says so only when it is asked again
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            os.ftruncate(self._descriptor, end)
            os.lseek(self._descriptor, end, os.SEEK_SET)
            raise
        self.written = new[-1].number

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
