"""events.jsonl: who joined or left when, why, and what it cost. For people and `elasticdl status`.

Entries are numbered. A restarted master counts the lines that are there and writes only what is missing, so
the log has no line twice and none too few.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from elasticdl.master.actions import WriteEntry


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

    def write(self, actions: list[WriteEntry]) -> None:
        lines = []
        for action in actions:
            if action.number > self.written:
                lines.append(json.dumps(action.entry._asdict()))
                self.written = action.number
        if lines:
            os.write(self._descriptor, ("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
