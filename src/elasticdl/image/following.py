"""Running an engine: every line shown as it comes, the last ones kept for the error."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from elasticdl.errors import ImageFailed, SpecError

_KEPT_LINES = 15


def follow(
    command: Sequence[str],
    show: Callable[[str], None],
    *,
    environ: Mapping[str, str] | None = None,
    grace_s: float = 10.0,
) -> None:
    """Run `command` to its end, with `environ` on top of ours. Raises ImageFailed with the end of its output.

    Interrupted, it ends the engine first and waits for it: what the engine reads must outlive the engine.
    """
    try:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as exc:
        raise SpecError(f"{command[0]} cannot be started: {exc}") from exc
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            last.append(line.rstrip())
            show(line.rstrip())
        code = process.wait()
    finally:
        _end(process, grace_s)
    if code:
        said = "\n".join(f"  {line}" for line in last) or "  (it said nothing)"
        raise ImageFailed(f"{command[0]} {command[1]} ended with exit code {code}; the end of its output:\n{said}")


def _end(process: subprocess.Popen[str], grace_s: float) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    if process.poll() is None:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()
