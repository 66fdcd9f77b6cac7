"""How far a lease is: its batches from the first on whose updates are in the rows. Pure."""

from __future__ import annotations

from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.lease_feed import Work


class Progress:
    """Of the leases of one worker. Pushes are acknowledged one by one, perhaps out of order."""

    def __init__(self, minibatch: int) -> None:
        self._minibatch = minibatch
        self._works: dict[tuple[int, int], Work] = {}  # under way, by sender and number
        self._done: dict[int, int] = {}  # by lease: the first batch that is not done
        self._beyond: dict[int, dict[int, Work]] = {}  # by lease: done, but not those before

    def begun(self, work: Work) -> None:
        self._works[work.sender, work.number] = work

    def work(self, sender: int, number: int) -> Work:
        """What was pushed under this name and is not in the rows."""
        return self._works.pop((sender, number))

    def done(self, work: Work) -> tuple[pb.Lease, int, list[Work]] | None:
        """Take note of a batch; the lease, its records that are done now, and the batches by which that has changed."""
        lease = work.lease
        first = self._done.setdefault(lease.id, lease.done // self._minibatch)
        beyond = self._beyond.setdefault(lease.id, {})
        beyond[work.place] = work
        added = []
        while first in beyond:
            added.append(beyond.pop(first))
            first += 1
        if not added:
            return None
        stop = added[-1].stop
        self._done[lease.id] = first
        if stop >= lease.stop:
            del self._done[lease.id], self._beyond[lease.id]
        return lease, stop - lease.start, added
