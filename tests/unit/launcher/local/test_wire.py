"""Lines between launcher and master."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.launcher.local.wire import JsonLineDecoder, MalformedLine, encode_line

DOCUMENTS = st.lists(st.dictionaries(st.text(), st.integers() | st.text()), max_size=4)


@given(DOCUMENTS, st.integers(1, 9))
def test_documents_arrive_whole_in_whatever_pieces(documents: list[dict[str, object]], piece: int) -> None:
    sent, lines = b"".join(map(encode_line, documents)), JsonLineDecoder()

    arrived = [one for at in range(0, len(sent), piece) for one in lines.feed(sent[at : at + piece])]

    assert arrived == documents


@pytest.mark.parametrize("line", [b"{]\n", b"[1]\n", b"\xff\n", b"[" * 100_000 + b"\n"])
def test_a_line_without_a_document_is_garbled(line: bytes) -> None:
    with pytest.raises(MalformedLine, match="expected"):
        JsonLineDecoder().feed(line)


def test_a_line_without_an_end_is_garbled_and_not_kept_for_ever() -> None:
    lines = JsonLineDecoder(max_bytes=100)
    lines.feed(b"x" * 100)

    with pytest.raises(MalformedLine, match="at most 100 bytes"):
        lines.feed(b"x")
