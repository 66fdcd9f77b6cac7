"""Who watches a job hears of it seldom, and at once that workers are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from elasticdl.master.runtime.service import MasterServicer
from elasticdl.rpc import elasticdl_pb2 as pb
from tests.unit.master.driver import Driver, running

SELDOM_HZ = 0.01
SHORT_S = 0.05


class SteppedLoop:
    """A master's loop whose turns are made by hand."""

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


def living(status: pb.JobStatus) -> set[str]:
    return {worker.id for worker in status.workers if worker.state not in ("left", "lost")}


def watch(loop: Any) -> AsyncIterator[pb.JobStatus]:
    return MasterServicer(loop).watch(pb.WatchRequest(max_hz=SELDOM_HZ))


async def heard(news: AsyncIterator[pb.JobStatus]) -> pb.JobStatus:
    return await asyncio.wait_for(anext(news), 10.0)


def test_a_worker_that_is_gone_is_told_at_once() -> None:
    async def hear() -> None:
        loop = SteppedLoop(running(3))
        news = watch(loop)
        assert len(living(await heard(news))) == 3

        waiting = asyncio.ensure_future(heard(news))
        await asyncio.sleep(0)
        loop.beat()
        loop.leave("worker-2")
        assert "worker-2" not in living(await waiting)

    asyncio.run(hear())


def test_a_worker_that_goes_while_a_status_is_on_its_way_is_told_at_once() -> None:
    async def hear() -> None:
        loop = SteppedLoop(running(3))
        news = watch(loop)
        await heard(news)
        loop.leave("worker-2")

        assert "worker-2" not in living(await heard(news))

    asyncio.run(hear())


def test_anything_else_may_wait() -> None:
    async def hear() -> None:
        loop = SteppedLoop(running(3))
        news = watch(loop)
        await heard(news)
        loop.beat()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(news), SHORT_S)

    asyncio.run(hear())
