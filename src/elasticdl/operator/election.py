"""Which of several operators acts: the one that holds a Lease.

As in client-go: who leads writes the time every few seconds; who waits takes over when that stands still for
`lease_s` by its own clock, so clocks need not agree; and who cannot write for `lease_s / 3 * 2` stops by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from elasticdl.errors import TransientError
from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyThere, Conflict

LEASE_S = 15.0

logger = logging.getLogger(__name__)


class Election:
    """`won` waits for the Lease, `kept` renews it until it is lost, `leave` gives it to whoever waits."""

    def __init__(
        self,
        api: Api,
        name: str,
        namespace: str,
        me: str,
        *,
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._name, self._namespace, self.me = api, name, namespace, me
        self._lease_s = lease_s
        self._clock = clock
        self._seen: tuple[str, str] = ("", "")
        self._seen_at = clock()

    async def won(self) -> None:
        """Returns when this one leads."""
        logger.info("%s waits for the Lease %s in namespace %s", self.me, self._name, self._namespace)
        while not await self._tried():
            await asyncio.sleep(self._pause_s)
        logger.info("%s leads", self.me)

    async def kept(self) -> None:
        """Returns when this one leads no longer."""
        renewed_at = self._clock()
        while self._clock() - renewed_at < self._lease_s / 3 * 2:
            await asyncio.sleep(self._pause_s)
            asked_at = self._clock()
            if await self._tried():
                renewed_at = asked_at
            elif self._seen[0] not in ("", self.me):
                break
        logger.warning("%s leads no longer: the Lease %s was not renewed in time", self.me, self._name)

    async def leave(self) -> None:
        try:
            await asyncio.to_thread(self._leave)
        except (TransientError, Conflict) as exc:
            logger.info("the Lease %s is left to run out: %s", self._name, exc)

    @property
    def _pause_s(self) -> float:
        return self._lease_s / 7.5

    async def _tried(self) -> bool:
        try:
            return await asyncio.to_thread(self.take)
        except TransientError as exc:
            logger.warning("the Lease %s cannot be reached: %s", self._name, exc)
            return False

    def take(self) -> bool:
        """Take or renew the Lease if that may be done; whether it is ours now."""
        found = self._api.get(kinds.LEASE, self._name, self._namespace)
        if found is None:
            return self._write(self._api.create, {"metadata": {"name": self._name, "namespace": self._namespace}})
        spec = found.get("spec") or {}
        seen = (spec.get("holderIdentity") or "", spec.get("renewTime") or "")
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        is_foreign = seen[0] not in ("", self.me)
        if is_foreign and self._clock() - self._seen_at < float(spec.get("leaseDurationSeconds") or self._lease_s):
            return False
        return self._write(self._api.replace, found)

    def _write(self, write: Callable[[dict[str, Any]], dict[str, Any]], lease: dict[str, Any]) -> bool:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        was = lease.get("spec") or {}
        mine = {"holderIdentity": self.me, "leaseDurationSeconds": max(1, int(self._lease_s)), "renewTime": now}
        if was.get("holderIdentity") != self.me:
            mine |= {"acquireTime": now, "leaseTransitions": int(was.get("leaseTransitions") or 0) + 1}
        kind = kinds.LEASE
        try:
            write({"apiVersion": kind.version, "kind": kind.kind, "metadata": lease["metadata"], "spec": was | mine})
        except (AlreadyThere, Conflict):
            return False
        self._seen, self._seen_at = (self.me, now), self._clock()
        return True

    def _leave(self) -> None:
        found = self._api.get(kinds.LEASE, self._name, self._namespace)
        if found and found["spec"].get("holderIdentity") == self.me:
            self._api.replace(found | {"spec": found["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}})
