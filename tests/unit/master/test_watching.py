"""A client that watches a job gets its status at the requested rate, and at once when a worker has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from elasticdl.master.runtime.service import MasterServicer
from elasticdl.rpc import elasticdl_pb2 as pb
from tests.unit.master.driver import Driver, running

LOW_RATE_HZ = 0.01
SHORT_WAIT_S = 0.05


class SteppedLoop:
    """A master's loop whose turns the test makes."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.machine = driver.machine
        self.over = asyncio.Event()
        self.clock = self
        self._changed = asyncio.Event()

    def now(self) -> float:
        return self.driver.now

    @contextmanager
    def watch_changes(self) -> Iterator[asyncio.Event]:
        yield self._changed

    def beat(self) -> None:
        self.driver.beat("worker-0", step=1)
        self._changed.set()

    def leave(self, worker: str) -> None:
        self.driver.exit(worker, code=0)
        self._changed.set()


def live_workers(status: pb.JobStatus) -> set[str]:
    return {worker.id for worker in status.workers if worker.state not in ("left", "lost")}


def watch(loop: Any) -> AsyncIterator[pb.JobStatus]:
    return MasterServicer(loop).watch(pb.WatchRequest(max_hz=LOW_RATE_HZ))


async def next_status(statuses: AsyncIterator[pb.JobStatus]) -> pb.JobStatus:
    return await asyncio.wait_for(anext(statuses), 10.0)


def test_the_end_of_a_worker_is_reported_at_once() -> None:
    async def watch_job() -> None:
        loop = SteppedLoop(running(3))
        statuses = watch(loop)
        assert len(live_workers(await next_status(statuses))) == 3

        waiting = asyncio.ensure_future(next_status(statuses))
        await asyncio.sleep(0)
        loop.beat()
        loop.leave("worker-2")
        assert "worker-2" not in live_workers(await waiting)

    asyncio.run(watch_job())


def test_the_end_of_a_worker_during_a_report_is_reported_at_once() -> None:
    async def watch_job() -> None:
        loop = SteppedLoop(running(3))
        statuses = watch(loop)
        await next_status(statuses)
        loop.leave("worker-2")

        assert "worker-2" not in live_workers(await next_status(statuses))

    asyncio.run(watch_job())


def test_any_other_change_waits_for_the_next_report() -> None:
    async def watch_job() -> None:
        loop = SteppedLoop(running(3))
        statuses = watch(loop)
        await next_status(statuses)
        loop.beat()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(statuses), SHORT_WAIT_S)

    asyncio.run(watch_job())
