"""Messages survive the way over frames; anything else is refused, never a crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps import _native, wire
from elasticdl.ps.wire import Kind, Malformed, Message, Part, Transport
from tests.unit.ps.messages import MESSAGES


def frames(message: Message) -> list[bytes]:
    return [frame.tobytes() if isinstance(frame, np.ndarray) else frame for frame in wire.encode(message)]


@given(MESSAGES)
def test_what_is_sent_is_what_arrives(message: Message) -> None:
    found = wire.decode(frames(message))

    assert found._replace(parts=()) == message._replace(parts=())
    for one, other in zip(found.parts, message.parts, strict=True):
        assert one.table == other.table
        assert one.ids.tolist() == other.ids.tolist()
        assert one.rows.shape == other.rows.shape
        assert one.rows.tolist() == other.rows.tolist()


@given(MESSAGES, st.data())
def test_what_is_cut_mixed_or_changed_is_refused_or_understood(message: Message, data: Any) -> None:
    changed = frames(message)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed) - 1))
        match data.draw(st.integers(0, 3)):
            case 0:
                changed[at] = data.draw(st.binary(max_size=80))
            case 1:
                changed[at] = changed[at][: data.draw(st.integers(0, len(changed[at])))]
            case 2:
                changed.insert(at, data.draw(st.binary(max_size=20)))
            case 3 if len(changed) > 1:
                del changed[at]
    try:
        found = wire.decode(changed)
    except Malformed:
        return
    assert all(part.ids.dtype == np.int64 and part.rows.dtype == np.float32 for part in found.parts)


@pytest.mark.parametrize("broken", [[], [b""], [b"x" * 80, b""], [b"EDP2" + bytes(76), b""]])
def test_frames_of_others_are_malformed(broken: list[bytes]) -> None:
    with pytest.raises(Malformed):
        wire.decode(broken)


@pytest.mark.parametrize(("transport", "error"), [(Transport.FLOAT16, 2**-11), (Transport.BFLOAT16, 2**-8)])
def test_rows_that_travel_with_16_bits_are_off_by_half_a_last_bit_at_most(transport: Transport, error: float) -> None:
    rows = np.random.default_rng(3).standard_normal((500, 7)).astype(np.float32)
    message = Message(Kind.PUSH, 1, parts=(Part(0, np.arange(500), rows),), transport=transport)

    sent = frames(message)
    found = wire.decode(sent)

    assert len(sent[-1]) == rows.size * 2
    assert found.transport is transport
    least = 2**-14  # below it float16 has fewer bits
    assert 0 < np.max(np.abs(found.parts[0].rows - rows) / np.maximum(np.abs(rows), least)) <= error
    again = wire.decode(frames(found)).parts[0].rows
    assert (again == found.parts[0].rows).all(), "it changes once"


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
