"""Calls to the API server from an event loop: in threads, several at a time, retried until they are answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from elasticdl.kube.errors import ApiError
from elasticdl.retry import backoff_delays

MAX_CONCURRENT_CALLS = 8  # at a time
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class ApiCalls:
    """Runs calls in a pool of threads, and keeps the tasks that wait for them.

    `failed` is a future that only ever gets an exception: the first unexpected one of a task.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MAX_CONCURRENT_CALLS, thread_name_prefix="pods")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: asyncio.Future[None] | None = None

    @property
    def failed(self) -> asyncio.Future[None]:
        if self._failed is None:
            self._failed = asyncio.get_running_loop().create_future()
        return self._failed

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    async def call_once(self, call: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: call(*arguments))

    async def call_until_answered(self, call: Callable[..., _T], *arguments: Any) -> _T:
        delays = backoff_delays()
        while True:
            try:
                return await self.call_once(call, *arguments)
            except ApiError as exc:
                _log.warning("%s; trying again", exc)
            await asyncio.sleep(next(delays))

    async def flush(self, timeout_s: float) -> None:
        """Return when all tasks have ended, or after `timeout_s`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def fail(self, exc: BaseException) -> None:
        if self.failed.done():
            _log.error("a task failed", exc_info=exc)
        else:
            self.failed.set_exception(exc)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            self.fail(exc)
