"""The end of a job that has no processes."""

from __future__ import annotations

import time

from elasticdl.errors import SpecError
from elasticdl.spec.directory import JobDirectory, write_json

_EXIT_CODES = {"failed": SpecError.exit_code, "stopped": 130}


def close(directory: JobDirectory, phase: str, reason: str) -> None:
    """Leave a result that says how it ended. That of a suspended job stays: it tells what was trained."""
    if not directory.root.exists() or (directory.result.exists() and phase == "stopped"):
        return
    now = time.time()
    result = {"phase": phase, "reason": reason, "exit_code": _EXIT_CODES[phase], "started_at": now, "ended_at": now}
    write_json(directory.result, result)
