"""A busy leader stays the leader, and knows for how long it is the leader."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from elasticdl.kube.api import Api
from elasticdl.kube.election import Election


class FakeLeaseApi:
    """The calls of an Api that keeps one Lease."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None

    def get(self, *_: Any) -> dict[str, Any] | None:
        return self.lease

    def create(self, document: dict[str, Any]) -> dict[str, Any]:
        self.lease = document
        return document

    replace = create


def test_a_leader_whose_worker_threads_are_all_busy_keeps_the_lease() -> None:
    async def elect_while_busy() -> str:
        is_done = threading.Event()
        loop, api = asyncio.get_running_loop(), FakeLeaseApi()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, is_done.wait, 60.0)
        try:
            async with asyncio.timeout(10.0):
                await Election(cast(Api, api), "lease", "team", "operator-0").wait_until_leader()
        finally:
            is_done.set()
            await busy
        assert api.lease is not None
        return str(api.lease["spec"]["holderIdentity"])

    assert asyncio.run(elect_while_busy()) == "operator-0"


def test_a_leader_stops_leading_before_another_candidate_can_take_over() -> None:
    now, api = [100.0], FakeLeaseApi()
    first, second = (
        Election(cast(Api, api), "lease", "team", name, lease_s=15.0, clock=lambda: now[0]) for name in ("a", "b")
    )

    assert not first.is_leader and first.try_acquire() and first.is_leader
    assert not second.try_acquire() and not second.is_leader
    now[0] += 9.9
    assert first.is_leader
    now[0] += 0.2
    assert not first.is_leader, "it still holds the Lease, but a call that has begun may take its time"
    assert first.try_acquire() and first.is_leader
    asyncio.run(first.release())
    assert not first.is_leader and second.try_acquire() and second.is_leader
