"""What a worker takes from someone who has not shown a token yet."""

from __future__ import annotations

import pytest
import torch

from elasticdl.collective import frames
from elasticdl.collective.frames import Frame


def test_a_greeting_is_its_header() -> None:
    greeting = frames.encode(Frame({"token": "t", "worker": "w"}, {}))

    assert frames.decode_greeting(greeting) == {"token": "t", "worker": "w"}


def test_a_stranger_cannot_make_a_worker_allocate_tensors() -> None:
    greeting = frames.encode(Frame({"token": "guessed"}, {"large": torch.empty(8)}))

    with pytest.raises(ConnectionError, match="a greeting with tensors"):
        frames.decode_greeting(greeting)


@pytest.mark.parametrize("text", [b"", b"GET / HTTP/1.1", b"[]", b"null", b"{}", b'{"header": 1, "tensors": []}'])
def test_what_is_no_greeting_is_refused(text: bytes) -> None:
    with pytest.raises(ConnectionError, match="cannot be read"):
        frames.decode_greeting(text)
