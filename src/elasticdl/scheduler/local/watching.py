"""Stay with a launched job until no process of it lives, and say what happens to it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from elasticdl.errors import ElasticDLError
from elasticdl.launcher.record import is_kept
from elasticdl.rpc.client import MasterClient
from elasticdl.scheduler.local import measured
from elasticdl.scheduler.local.events import Ended, Event, Lost
from elasticdl.spec.directory import JobDirectory, read_json

HZ = 2.0
AWAY_S = 2.0  # a master that does not answer for so long is looked for again
START_S = 20.0  # a launcher has written down that it lives by then
POLL_S = 0.05

_log = logging.getLogger(__name__)


def follow(directory: JobDirectory, tell: Callable[[Event], None]) -> threading.Thread:
    """Tell of it from a thread of its own, which ends with the process."""
    name = directory.root.name
    thread = threading.Thread(target=_follow, args=(name, directory, tell), name=f"watch-{name}", daemon=True)
    thread.start()
    return thread


def _follow(name: str, directory: JobDirectory, tell: Callable[[Event], None]) -> None:
    deadline = time.monotonic() + START_S
    while True:
        is_started = directory.launcher.exists()
        is_alive = is_kept(directory) if is_started else time.monotonic() < deadline
        result = read_json(directory.result)
        if not is_alive or (result is not None and not is_started):
            tell(Lost(name) if result is None else Ended(name, str(result.get("phase", "failed"))))
            return
        if result is not None or not is_started:
            time.sleep(POLL_S)  # its last processes end, or its first begin
            continue
        try:
            with MasterClient.connect(directory, AWAY_S) as client:
                for status in client.watch(HZ):
                    tell(measured.seen(name, status))
        except ElasticDLError as exc:
            _log.info("%s: %s", name, exc)
            time.sleep(POLL_S)
