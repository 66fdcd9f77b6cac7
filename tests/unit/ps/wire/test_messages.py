"""Messages survive the way over frames; anything else is refused, never a crash."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps import _native
from elasticdl.ps.wire import messages
from elasticdl.ps.wire.messages import MalformedMessage, MessageKind, PsMessage, TablePart, WireDtype
from tests.fuzz import ps_wire
from tests.unit.ps.messages import MESSAGES


def frames(message: PsMessage) -> list[bytes]:
    return [bytes(frame) for frame in messages.encode_message(message)]


@given(MESSAGES)
def test_what_is_sent_is_what_arrives(message: PsMessage) -> None:
    received = messages.decode_message(frames(message))

    assert received._replace(parts=()) == message._replace(parts=())
    for received_part, part in zip(received.parts, message.parts, strict=True):
        assert received_part.table == part.table
        assert received_part.ids.tolist() == part.ids.tolist()
        assert received_part.rows.shape == part.rows.shape
        assert received_part.rows.tolist() == part.rows.tolist()


@given(MESSAGES, st.data())
def test_what_is_cut_mixed_or_changed_is_refused_or_understood(message: PsMessage, data: Any) -> None:
    changed = frames(message)
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(changed) - 1))
        match data.draw(st.integers(0, 3)):
            case 0:
                changed[index] = data.draw(st.binary(max_size=80))
            case 1:
                changed[index] = changed[index][: data.draw(st.integers(0, len(changed[index])))]
            case 2:
                changed.insert(index, data.draw(st.binary(max_size=20)))
            case 3 if len(changed) > 1:
                del changed[index]
    try:
        received = messages.decode_message(changed)
    except MalformedMessage:
        return
    assert all(part.ids.dtype == np.int64 and part.rows.dtype == np.float32 for part in received.parts)


@pytest.mark.parametrize("broken", [[], [b""], [b"x" * 80, b""], [b"EDP3" + bytes(84), b""]])
def test_frames_of_others_are_malformed(broken: list[bytes]) -> None:
    with pytest.raises(MalformedMessage):
        messages.decode_message(broken)


@pytest.mark.parametrize(("transport", "error"), [(WireDtype.FLOAT16, 2**-11), (WireDtype.BFLOAT16, 2**-8)])
def test_rows_that_travel_with_16_bits_are_off_by_half_a_last_bit_at_most(transport: WireDtype, error: float) -> None:
    rows = np.random.default_rng(3).standard_normal((500, 7)).astype(np.float32)
    message = PsMessage(MessageKind.PUSH, 1, parts=(TablePart(0, np.arange(500), rows),), dtype=transport)

    sent = frames(message)
    received = messages.decode_message(sent)

    assert len(sent[-1]) == rows.size * 2
    assert received.dtype is transport
    least = 2**-14  # below it float16 has fewer bits
    assert 0 < np.max(np.abs(received.parts[0].rows - rows) / np.maximum(np.abs(rows), least)) <= error
    again = messages.decode_message(frames(received)).parts[0].rows
    assert (again == received.parts[0].rows).all(), "it changes once"


def test_float16_is_that_of_numpy() -> None:
    every = np.arange(2**16, dtype=np.uint16).reshape(-1, 16)
    wide, back = np.empty(every.shape, np.float32), np.empty(every.shape, np.uint16)
    _native.widen(every, wide, False)
    _native.narrow(wide, back, False)
    expected = every.view(np.float16).astype(np.float32)
    assert np.array_equal(wide, expected, equal_nan=True)
    assert (back == every)[~np.isnan(wide)].all()

    random = np.random.default_rng(1)
    bits = random.integers(0, 2**32, (5000, 20), dtype=np.uint64).astype(np.uint32)
    small = random.uniform(-1e-4, 1e-4, (5000, 20)).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for values in (bits.view(np.float32), small):
            narrowed = np.empty(values.shape, np.uint16)
            _native.narrow(values, narrowed, False)
            assert np.array_equal(narrowed.view(np.float16), values.astype(np.float16), equal_nan=True)


@pytest.mark.parametrize("transport", WireDtype)
@pytest.mark.parametrize("where", [0, 64])
def test_a_part_makes_no_room_for_rows_that_were_not_sent(transport: WireDtype, where: int) -> None:
    header, text = frames(PsMessage(MessageKind.PUSH, 1, memory=7))
    header = header[:6] + struct.pack("<H", 1) + header[8:]
    part = struct.pack("<HBxIIIQ", 0, transport, 0, 2**32 - 1, 2**20, where)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            messages.decode_message([header, text, part, b"four"])
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()


@given(MESSAGES, st.data())
def test_no_frames_make_the_receiver_use_more_memory_than_a_few_times_their_size(message: PsMessage, data: Any) -> None:
    changed = bytearray(ps_wire.join(frames(message)))
    for index in data.draw(st.lists(st.integers(0, len(changed) - 1), max_size=8)):
        changed[index] = data.draw(st.sampled_from([0, 1, 127, 255]))
    tracemalloc.start()
    try:
        ps_wire.fuzz_one(bytes(changed))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 20 * len(changed) + (1 << 18)


@pytest.mark.parametrize("transport", WireDtype)
def test_a_large_array_travels_in_several_frames(transport: WireDtype) -> None:
    rows = np.arange(3 * messages.FRAME_BYTES // 4 + 6, dtype=np.float32).reshape(-1, 3) % 128
    message = PsMessage(MessageKind.PUSH, 1, parts=(TablePart(0, np.arange(len(rows)), rows),), dtype=transport)

    sent = frames(message)
    received = messages.decode_message(sent).parts[0]

    assert max(len(frame) for frame in sent) == messages.FRAME_BYTES
    assert (received.rows == rows).all()
    assert (received.ids == np.arange(len(rows))).all()
    for number in range(3, len(sent)):
        with pytest.raises(MalformedMessage):
            messages.decode_message([*sent[:number], *sent[number + 1 :]])


def test_the_token_is_read_before_anything_else_is_looked_at() -> None:
    header, text = frames(PsMessage(MessageKind.PUSH, 9, token=b"0123456789abcdef"))
    broken = header[:4] + b"\xff" * 12 + header[16:]

    assert messages.read_token([broken, text, b"no part"]) == (b"0123456789abcdef", 9)
