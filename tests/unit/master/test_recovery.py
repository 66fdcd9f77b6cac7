"""The time of a restarted master."""

from __future__ import annotations

import asyncio
from pathlib import Path

from elasticdl.master.machine import events as ev
from elasticdl.master.runtime import codec
from elasticdl.master.runtime.journal import FileJournal
from elasticdl.master.runtime.loop import MasterLoop
from elasticdl.spec.directory import JobDirectory
from tests.manual_clock import ManualClock
from tests.unit.master.driver import job_spec

DAY_S = 86_400.0


def recovered_time(root: Path, started_at: float, now: float) -> float:
    """The time of a master that starts at `now`, after another one that started at `started_at`."""
    directory = JobDirectory(root / "job")
    spec = job_spec()
    directory.create(spec)
    journal = FileJournal(directory.journal, 1)
    list(journal.replay())
    journal.append([codec.encode_event(ev.MasterStarted(7), started_at)])
    journal.close()

    async def recover() -> float:
        loop = MasterLoop(directory, spec, ManualClock(now), 1)
        loop.recover()
        loop.close()
        return loop.clock.now()

    return asyncio.run(recover())


def test_time_is_never_before_the_newest_journaled_event(tmp_path: Path) -> None:
    assert recovered_time(tmp_path, started_at=1000.0 + DAY_S, now=1000.0) == 1000.0 + DAY_S


def test_time_is_otherwise_that_of_the_wall_clock(tmp_path: Path) -> None:
    assert recovered_time(tmp_path, started_at=1000.0, now=1500.0) == 1500.0
