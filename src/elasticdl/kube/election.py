"""Which of several processes acts, of operators or of schedulers: the one that holds a Lease.

As in client-go: who leads writes the time every few seconds; who waits takes over when that stands still for
`lease_s` by its own clock, so clocks need not agree; and who cannot write for `lease_s / 3 * 2` stops by itself.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar

from elasticdl.errors import TransientError
from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyExists, Conflict

LEASE_S = 15.0
_T = TypeVar("_T")

logger = logging.getLogger(__name__)


class Election:
    """A Lease of the cluster: wait until it is ours, renew it until it is lost, release it to whoever waits."""

    def __init__(
        self,
        api: Api,
        name: str,
        namespace: str,
        identity: str,
        *,
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._name, self._namespace, self.identity = api, name, namespace, identity
        self._lease_s = lease_s
        self._clock = clock
        # Of its own: looks at many jobs may keep all other threads busy for longer than a Lease lasts.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lease")
        self._seen: tuple[str, str] = ("", "")
        self._seen_at = clock()
        self._led_until = -math.inf  # by our clock; then another may lead
        self.last_error = ""  # why the Lease could not be asked for the last time, if so

    @property
    def is_leader(self) -> bool:
        """Whether nobody else can lead yet: to be asked before each thing that only the leader may do."""
        return self._clock() < self._led_until

    async def wait_until_leader(self) -> None:
        """Returns when this one leads."""
        logger.info("%s waits for the Lease %s in namespace %s", self.identity, self._name, self._namespace)
        holder = ""
        while not await self._try_acquire_in_thread():
            if self._seen[0] != holder:
                holder = self._seen[0]
                logger.info("%s leads; it is followed when it ends, or is silent for %g s", holder, self._lease_s)
            await asyncio.sleep(self._pause_s)
        logger.info("%s leads", self.identity)

    async def wait_until_lost(self) -> None:
        """Returns when this one leads no longer."""
        while self.is_leader:
            await asyncio.sleep(self._pause_s)
            if not await self._try_acquire_in_thread() and self._seen[0] not in ("", self.identity):
                break
        self._led_until = -math.inf
        logger.warning("%s leads no longer: the Lease %s was not renewed in time", self.identity, self._name)

    async def release(self) -> None:
        self._led_until = -math.inf
        try:
            await self._call(self._release_lease)
        except (TransientError, Conflict) as exc:
            logger.info("the Lease %s is left to run out: %s", self._name, exc)

    @property
    def _pause_s(self) -> float:
        return self._lease_s / 7.5

    async def _try_acquire_in_thread(self) -> bool:
        try:
            is_ours = await self._call(self.try_acquire)
            self.last_error = ""
            return is_ours
        except TransientError as exc:
            self.last_error = f"the Lease {self._name} cannot be reached: {exc}"
            logger.warning("%s", self.last_error)
            return False

    async def _call(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def try_acquire(self) -> bool:
        """Take or renew the Lease if that may be done; whether it is ours now."""
        asked_at = self._clock()
        is_ours = self._acquire_or_renew()
        if is_ours:
            self._led_until = asked_at + self._lease_s / 3 * 2
        return is_ours

    def _acquire_or_renew(self) -> bool:
        lease = self._api.get(kinds.LEASE, self._name, self._namespace)
        if lease is None:
            return self._write(self._api.create, {"metadata": {"name": self._name, "namespace": self._namespace}})
        spec = lease.get("spec") or {}
        seen = (spec.get("holderIdentity") or "", spec.get("renewTime") or "")
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        is_foreign = seen[0] not in ("", self.identity)
        if is_foreign and self._clock() - self._seen_at < float(spec.get("leaseDurationSeconds") or self._lease_s):
            return False
        return self._write(self._api.replace, lease)

    def _write(self, write: Callable[[dict[str, Any]], dict[str, Any]], lease: dict[str, Any]) -> bool:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        was = lease.get("spec") or {}
        mine = {"holderIdentity": self.identity, "leaseDurationSeconds": max(1, int(self._lease_s)), "renewTime": now}
        if was.get("holderIdentity") != self.identity:
            mine |= {"acquireTime": now, "leaseTransitions": int(was.get("leaseTransitions") or 0) + 1}
        kind = kinds.LEASE
        try:
            write(
                {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": lease["metadata"], "spec": was | mine}
            )
        except (AlreadyExists, Conflict):
            return False
        self._seen, self._seen_at = (self.identity, now), self._clock()
        return True

    def _release_lease(self) -> None:
        lease = self._api.get(kinds.LEASE, self._name, self._namespace)
        if lease and lease["spec"].get("holderIdentity") == self.identity:
            self._api.replace(lease | {"spec": lease["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}})
