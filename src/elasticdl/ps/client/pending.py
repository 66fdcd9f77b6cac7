"""Requests that a worker has sent and that are not answered yet, and the shared buffers they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.wire.messages import Floats, Ids, MessageKind, PsMessage
from elasticdl.ps.wire.shared_memory import SharedBuffer, SharedMemory
from elasticdl.spec import PsId

RowPositions = slice | NDArray[np.int64]


class RequestPart(NamedTuple):
    """What one ps gets of one plan, and where in the plan its rows belong."""

    table: str
    ids: Ids
    rows: Floats
    plan_number: int
    positions: RowPositions


class PsRequest(NamedTuple):
    ps: PsId
    message: PsMessage
    parts: tuple[RequestPart, ...]


class PendingReplies:
    """Requests without an answer; `rows` is filled by the replies to a pull, plan by plan."""

    __slots__ = ("clocks", "is_stale", "open_count", "rows")

    def __init__(self, rows: Sequence[Floats | None] = ()) -> None:
        self.open_count = 0  # requests
        self.rows = list(rows)
        self.clocks: dict[PsId, int] = {}
        self.is_stale = False


RequestBuffers = tuple[SharedBuffer | None, ...]  # one for each share of a request; None: its arrays are sent


class SharedBuffers:
    """One memory for each ps: when that is lost, nobody gets the rooms that it may still write to."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._memories: dict[PsId, SharedMemory] = {}
        self._seen: set[PsId] = set()

    def close(self) -> None:
        for name in list(self._memories):
            self.forget(name)

    def offer_memory(self, name: PsId) -> PsMessage | None:
        """What this ps is asked, once: whether it sees our memory."""
        if not self._is_on or name in self._memories or not (memory := SharedMemory.create_if_supported()):
            return None
        self._memories[name] = memory
        return PsMessage(MessageKind.OPEN_MEMORY, 0, text=memory.handle.encode())

    def confirm(self, name: PsId) -> None:
        """This ps does."""
        self._seen.add(name)

    def forget(self, name: PsId) -> None:
        """This ps does not, or is gone."""
        self._seen.discard(name)
        if memory := self._memories.pop(name, None):
            memory.close()

    def memory_name(self, name: PsId) -> int:
        return self._memories[name].handle.name

    def allocate(self, request: PsRequest, columns: Callable[[str], int]) -> RequestBuffers:
        """They must be kept until the answer, whoever still waits for it."""
        if request.ps not in self._seen:
            return (None,) * len(request.parts)
        memory = self._memories[request.ps]
        return tuple(memory.allocate(share.ids, share.rows, columns(share.table)) for share in request.parts)
