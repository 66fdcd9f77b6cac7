"""Requests of a worker that are not answered yet, and the shared buffers they use."""

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
    """The ids and rows of one plan that go to one ps, and their positions in the plan."""

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
    """Requests that are not answered yet; the replies to a pull fill `rows`, plan by plan."""

    __slots__ = ("clocks", "is_stale", "open_count", "rows")

    def __init__(self, rows: Sequence[Floats | None] = ()) -> None:
        self.open_count = 0  # requests
        self.rows = list(rows)
        self.clocks: dict[PsId, int] = {}
        self.is_stale = False


RequestBuffers = tuple[SharedBuffer | None, ...]  # one for each part of a request; None: its arrays are sent


class SharedBuffers:
    """One shared memory for each ps, so that buffers a lost ps may still write to are never used again."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._memories: dict[PsId, SharedMemory] = {}
        self._confirmed: set[PsId] = set()

    def close(self) -> None:
        for name in list(self._memories):
            self.forget(name)

    def offer_memory(self, name: PsId) -> PsMessage | None:
        """Creates a shared memory for this ps, if it has none, and returns the message that offers it."""
        if not self._is_on or name in self._memories or not (memory := SharedMemory.create_if_supported()):
            return None
        self._memories[name] = memory
        return PsMessage(MessageKind.OPEN_MEMORY, 0, text=memory.handle.encode())

    def confirm(self, name: PsId) -> None:
        """Records that this ps has opened its memory."""
        self._confirmed.add(name)

    def forget(self, name: PsId) -> None:
        """Drops the memory of a ps that cannot open it or is gone."""
        self._confirmed.discard(name)
        if memory := self._memories.pop(name, None):
            memory.close()

    def memory_name(self, name: PsId) -> int:
        return self._memories[name].handle.name

    def allocate(self, request: PsRequest, columns: Callable[[str], int]) -> RequestBuffers:
        """Allocates a buffer for each part. Keep them until the reply, even if it is not needed any more."""
        if request.ps not in self._confirmed:
            return (None,) * len(request.parts)
        memory = self._memories[request.ps]
        return tuple(memory.allocate(part.ids, part.rows, columns(part.table)) for part in request.parts)
