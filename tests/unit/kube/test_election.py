"""A leader that is busy stays the leader."""

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


def test_looks_that_keep_all_threads_busy_do_not_cost_the_lease() -> None:
    async def led() -> str:
        is_done = threading.Event()
        loop, api = asyncio.get_running_loop(), OneLease()
        loop.set_default_executor(ThreadPoolExecutor(1))
        look = loop.run_in_executor(None, is_done.wait, 60.0)
        try:
            async with asyncio.timeout(10.0):
                await Election(cast(Api, api), "lease", "team", "me").won()
        finally:
            is_done.set()
            await look
        assert api.lease is not None
        return str(api.lease["spec"]["holderIdentity"])

    assert asyncio.run(led()) == "me"
