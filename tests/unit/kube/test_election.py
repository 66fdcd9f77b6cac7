"""A leader that is busy stays the leader, and knows for how long."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from elasticdl.kube.api import Api
from elasticdl.kube.election import Election


class OneLease:
    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None

    def get(self, *_: Any) -> dict[str, Any] | None:
        return self.lease

    def create(self, document: dict[str, Any]) -> dict[str, Any]:
        self.lease = document
        return document

    replace = create


def test_looks_that_keep_all_threads_busy_do_not_cost_the_lease() -> None:
    async def led() -> str:
        is_done = threading.Event()
        loop, api = asyncio.get_running_loop(), OneLease()
        loop.set_default_executor(ThreadPoolExecutor(1))
        look = loop.run_in_executor(None, is_done.wait, 60.0)
        try:
            async with asyncio.timeout(10.0):
                await Election(cast(Api, api), "lease", "team", "me").wait_until_leader()
        finally:
            is_done.set()
            await look
        assert api.lease is not None
        return str(api.lease["spec"]["holderIdentity"])

    assert asyncio.run(led()) == "me"


def test_who_leads_knows_until_when_nobody_else_can() -> None:
    now, api = [100.0], OneLease()
    first, second = (
        Election(cast(Api, api), "lease", "team", name, lease_s=15.0, clock=lambda: now[0]) for name in ("a", "b")
    )

    assert not first.is_leader and first.try_acquire() and first.is_leader
    assert not second.try_acquire() and not second.is_leader
    now[0] += 9.9
    assert first.is_leader
    now[0] += 0.2
    assert not first.is_leader, "though the Lease is still its own: a call that is under way may take its time"
    assert first.try_acquire() and first.is_leader
    asyncio.run(first.release())
    assert not first.is_leader and second.try_acquire() and second.is_leader
