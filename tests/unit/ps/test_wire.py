"""Messages survive the way over frames; anything else is refused, never a crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps import wire
from elasticdl.ps.wire import Malformed, Message
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


@pytest.mark.parametrize("broken", [[], [b""], [b"x" * 80, b""], [b"EDP1" + bytes(76), b""]])
def test_frames_of_others_are_malformed(broken: list[bytes]) -> None:
    with pytest.raises(Malformed):
        wire.decode(broken)
