"""Which ps a worker shares memory with, and the rooms of its requests there."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.ps.pending import Request
from elasticdl.ps.shared import Memory, Room
from elasticdl.ps.wire import Kind, Message
from elasticdl.spec import PsId

Rooms = tuple[Room | None, ...]  # one for each share of a request; None: its arrays are sent


class Sharing:
    """One memory for each ps: when that is lost, nobody gets the rooms that it may still write to."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._memories: dict[PsId, Memory] = {}
        self._seen: set[PsId] = set()

    def close(self) -> None:
        for name in list(self._memories):
            self.forget(name)

    def offer(self, name: PsId) -> Message | None:
        """What this ps is asked, once: whether it sees our memory."""
        if not self._is_on or name in self._memories or not (memory := Memory.make()):
            return None
        self._memories[name] = memory
        return Message(Kind.SHARE, 0, text=memory.offer.dump())

    def seen(self, name: PsId) -> None:
        """This ps does."""
        self._seen.add(name)

    def forget(self, name: PsId) -> None:
        """This ps does not, or is gone."""
        self._seen.discard(name)
        if memory := self._memories.pop(name, None):
            memory.close()

    def memory(self, name: PsId) -> int:
        return self._memories[name].offer.name

    def rooms(self, request: Request, columns: Callable[[str], int]) -> Rooms:
        """They must be kept until the answer, whoever still waits for it."""
        if request.ps not in self._seen:
            return (None,) * len(request.shares)
        memory = self._memories[request.ps]
        return tuple(memory.room(share.ids, share.rows, columns(share.table)) for share in request.shares)
