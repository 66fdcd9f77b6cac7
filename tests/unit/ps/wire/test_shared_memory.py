"""Rooms in shared memory: nobody gets one that another still looks at, and a ps opens nothing but such a memory."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps.client.pending import PsRequest, RequestPart, SharedBuffers
from elasticdl.ps.wire import messages
from elasticdl.ps.wire.messages import (
    NO_ROWS,
    MalformedMessage,
    MessageKind,
    PsMessage,
    SharedMemoryNotFound,
    TablePart,
)
from elasticdl.ps.wire.shared_memory import (
    MIN_BUFFER_BYTES,
    SharedBuffer,
    SharedMemory,
    SharedMemoryHandle,
    SharedMemoryView,
    SharedMemoryViews,
)
from elasticdl.spec import PsId

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has memory without a name")

COLUMNS = 4
LEAST = MIN_BUFFER_BYTES // (8 + 4 * COLUMNS) + 1


def room(memory: SharedMemory, count: int = LEAST, value: float | None = None) -> SharedBuffer:
    rows = NO_ROWS if value is None else np.full((count, COLUMNS), value, np.float32)
    buffer = memory.allocate(np.arange(count), rows, COLUMNS)
    assert buffer is not None
    return buffer


@given(st.lists(st.tuples(st.booleans(), st.integers(LEAST, 5 * LEAST), st.integers(0, 9)), max_size=40))
def test_what_lies_in_a_room_stays_until_nobody_looks_at_it(steps: list[tuple[bool, int, int]]) -> None:
    memory = SharedMemory.create(1 << 22)
    values_and_rows: list[tuple[float, np.ndarray]] = []
    for number, (is_new, count, which) in enumerate(steps):
        if is_new or not values_and_rows:
            buffer = memory.allocate(np.arange(count), np.full((count, COLUMNS), number, np.float32), COLUMNS)
            if buffer is not None:
                assert buffer.ids.tolist() == list(range(count))
                values_and_rows.append((number, buffer.rows[1:]))  # a view of the rows keeps all of the room
        else:
            del values_and_rows[which % len(values_and_rows)]
        assert all((rows == value).all() for value, rows in values_and_rows)
    memory.close()


def test_rooms_are_used_again_and_end() -> None:
    memory = SharedMemory.create(1 << 20)
    first = room(memory)
    offset = first.offset
    del first
    assert room(memory).offset == offset, "nobody looks at the first one any more"
    buffers = [memory.allocate(np.arange(LEAST), NO_ROWS, COLUMNS) for _ in range(100)]
    assert buffers[0] is not None and buffers[-1] is None, "then arrays are sent"
    assert memory.allocate(np.arange(3), NO_ROWS, COLUMNS) is None, "three rows are not worth it"
    memory.close()


def test_both_sides_see_the_same_arrays_and_only_a_place_is_sent() -> None:
    memory = SharedMemory.create()
    views = SharedMemoryViews()
    views.open(memory.handle)
    there = room(memory, value=2.5)
    message = PsMessage(
        MessageKind.PUSH, 7, parts=(TablePart(3, there.ids, there.rows, there.offset),), memory=memory.handle.name
    )
    frames = messages.encode_message(message)
    assert len(frames) == 3

    part = messages.decode_message(frames, views.find).parts[0]

    assert part.table == 3 and part.ids.tolist() == there.ids.tolist() and (part.rows == 2.5).all()
    part.rows[:] = 1.0
    assert (there.rows == 1.0).all()
    memory.close()


def test_a_ps_that_does_not_see_the_memory_says_so_by_the_number_of_the_request() -> None:
    part = TablePart(0, np.arange(3), NO_ROWS, offset=64)
    with pytest.raises(SharedMemoryNotFound) as raised:
        messages.decode_message(
            messages.encode_message(PsMessage(MessageKind.PULL, 17, parts=(part,), memory=1)), SharedMemoryViews().find
        )
    assert raised.value.request == 17


@pytest.mark.parametrize(("at", "count"), [(1 << 20, 8), ((1 << 20) - 64, 9), (1, 1), (2**63, 1), (64, 2**31)])
def test_a_place_outside_of_the_memory_is_malformed(at: int, count: int) -> None:
    memory, views = SharedMemory.create(1 << 20), SharedMemoryViews()
    views.open(memory.handle)
    header = messages.encode_message(
        PsMessage(MessageKind.PULL, 1, memory=memory.handle.name, parts=(TablePart(0, np.arange(1), NO_ROWS, 64),))
    )
    frames = [*header[:2], messages._PART.pack(0, 0, count, 0, 0, at)]
    with pytest.raises(MalformedMessage, match="shared memory"):
        messages.decode_message(frames, views.find)
    memory.close()


def test_a_ps_opens_no_other_file(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SharedMemory.create(1 << 20)
    name, pid, fd = memory.handle
    with tempfile.TemporaryFile() as other_file:
        offers = [
            SharedMemoryHandle(name, pid, other_file.fileno()),
            SharedMemoryHandle(name + 1, pid, fd),
            SharedMemoryHandle(name, 2**30, fd),
            SharedMemoryHandle(name, 1, 0),
        ]
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", lambda *_: pytest.fail("a file was opened"))
            for offer in offers:
                with pytest.raises(SharedMemoryNotFound):
                    SharedMemoryView.open(offer)
    bare = os.memfd_create(f"elasticdl-{5:016x}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(bare, 1 << 20)
    with pytest.raises(SharedMemoryNotFound):
        SharedMemoryView.open(SharedMemoryHandle(5, pid, bare))  # it could shrink while we read it
    os.close(bare)
    memory.close()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"[1, 2]", b"[1, -2, 3]", b'[1, 2, "3"]', b"[1, 2, true]", b"null"])
def test_an_offer_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        SharedMemoryHandle.decode(text)


def test_a_ps_that_was_lost_may_write_where_it_was_told_to_and_nobody_looks_there_any_more() -> None:
    ps, sharing = PsId("ps-0"), SharedBuffers(is_on=True)
    share = RequestPart("table", np.arange(LEAST), NO_ROWS, 0, slice(0, LEAST))
    request = PsRequest(ps, PsMessage(MessageKind.PULL, 1), (share,))
    offer = sharing.offer_memory(ps)
    assert offer is not None and sharing.allocate(request, lambda _: COLUMNS) == (None,), "it has not found it yet"
    sharing.confirm(ps)
    (buffer,) = sharing.allocate(request, lambda _: COLUMNS)
    assert buffer is not None
    _, late_rows = SharedMemoryView.open(SharedMemoryHandle.decode(offer.text)).arrays(
        buffer.offset, LEAST, LEAST, COLUMNS
    )

    sharing.forget(ps)
    del buffer
    assert sharing.offer_memory(ps) is not None
    sharing.confirm(ps)
    (next_buffer,) = sharing.allocate(request, lambda _: COLUMNS)
    assert next_buffer is not None
    next_buffer.rows[:] = 1.0
    late_rows[:] = 2.0

    assert (next_buffer.rows == 1.0).all()
    sharing.close()
