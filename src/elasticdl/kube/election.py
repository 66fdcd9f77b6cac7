"""Leader election among operators, or among schedulers, by a Lease.

The rules are those of client-go: the leader renews the Lease every few seconds. A candidate takes over when the Lease
has not changed for `lease_s` by its own clock, so clocks need not agree. A leader that could not renew the Lease for
two thirds of `lease_s` stops leading.
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
    """One candidate for a Lease: waits until it holds the Lease, renews it until it is lost, releases it."""

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
        # A separate thread: reconciliations may keep the default executor busy for longer than a Lease lasts.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lease")
        self._last_seen: tuple[str, str] = ("", "")  # holder and renewal time of the Lease
        self._last_change_at = clock()
        self._leader_until = -math.inf  # by this clock; afterwards another candidate may be the leader
        self.last_error = ""  # why the last attempt to reach the Lease failed; "": it succeeded

    @property
    def is_leader(self) -> bool:
        """Whether no other candidate can be the leader yet. Check it before each action of the leader."""
        return self._clock() < self._leader_until

    async def wait_until_leader(self) -> None:
        """Returns when this candidate is the leader."""
        logger.info("%s waits for the Lease %s in namespace %s", self.identity, self._name, self._namespace)
        holder = ""
        while not await self._try_acquire_in_thread():
            if self._last_seen[0] != holder:
                holder = self._last_seen[0]
                logger.info(
                    "%s is the leader; waiting until it ends, or does not renew the Lease for %g s",
                    holder,
                    self._lease_s,
                )
            await asyncio.sleep(self._renew_interval_s)
        logger.info("%s is the leader", self.identity)

    async def wait_until_lost(self) -> None:
        """Returns when this candidate is no longer the leader."""
        while self.is_leader:
            await asyncio.sleep(self._renew_interval_s)
            if not await self._try_acquire_in_thread() and self._last_seen[0] not in ("", self.identity):
                break
        self._leader_until = -math.inf
        logger.warning("%s is no longer the leader: the Lease %s was not renewed in time", self.identity, self._name)

    async def release(self) -> None:
        """Stops leading and lets another candidate take over at once."""
        self._leader_until = -math.inf
        try:
            await self._call(self._release_lease)
        except (TransientError, Conflict) as exc:
            logger.info("the Lease %s was not released and will expire: %s", self._name, exc)

    @property
    def _renew_interval_s(self) -> float:
        return self._lease_s / 7.5

    async def _try_acquire_in_thread(self) -> bool:
        try:
            is_holder = await self._call(self.try_acquire)
            self.last_error = ""
            return is_holder
        except TransientError as exc:
            self.last_error = f"the Lease {self._name} cannot be reached: {exc}"
            logger.warning("%s", self.last_error)
            return False

    async def _call(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def try_acquire(self) -> bool:
        """Acquires or renews the Lease if that is allowed. Returns whether this candidate holds it now."""
        requested_at = self._clock()
        is_holder = self._acquire_or_renew()
        if is_holder:
            self._leader_until = requested_at + self._lease_s / 3 * 2
        return is_holder

    def _acquire_or_renew(self) -> bool:
        lease = self._api.get(kinds.LEASE, self._name, self._namespace)
        if lease is None:
            return self._write(self._api.create, {"metadata": {"name": self._name, "namespace": self._namespace}})
        spec = lease.get("spec") or {}
        current = (spec.get("holderIdentity") or "", spec.get("renewTime") or "")
        if current != self._last_seen:
            self._last_seen, self._last_change_at = current, self._clock()
        has_other_holder = current[0] not in ("", self.identity)
        if has_other_holder and self._clock() - self._last_change_at < float(
            spec.get("leaseDurationSeconds") or self._lease_s
        ):
            return False
        return self._write(self._api.replace, lease)

    def _write(self, write: Callable[[dict[str, Any]], dict[str, Any]], lease: dict[str, Any]) -> bool:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = lease.get("spec") or {}
        change = {"holderIdentity": self.identity, "leaseDurationSeconds": max(1, int(self._lease_s)), "renewTime": now}
        if spec.get("holderIdentity") != self.identity:
            change |= {"acquireTime": now, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        kind = kinds.LEASE
        document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": lease["metadata"]}
        try:
            write(document | {"spec": spec | change})
        except (AlreadyExists, Conflict):
            return False
        self._last_seen, self._last_change_at = (self.identity, now), self._clock()
        return True

    def _release_lease(self) -> None:
        lease = self._api.get(kinds.LEASE, self._name, self._namespace)
        if lease and lease["spec"].get("holderIdentity") == self.identity:
            self._api.replace(lease | {"spec": lease["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}})
