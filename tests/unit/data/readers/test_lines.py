from __future__ import annotations

import csv
import io
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data.readers.lines import BOM, UnclosedQuoteError, find_record_starts
from tests.properties import examples

fragments = st.sampled_from(['"', '""', ",", "\n", "\r\n", "a", "bc ", "é", '"x"', ',"y,\n', "\t"])
texts = st.lists(fragments, max_size=40).map("".join)


def cut(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


def starts_of(content: bytes, block_bytes: int = 7, delimiter: bytes = b",") -> list[int]:
    return [int(start) for starts in find_record_starts(cut(content, block_bytes), delimiter) for start in starts]


def rows(text: str) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row]


@settings(max_examples=examples(400))
@given(texts, st.integers(1, 50))
def test_records_begin_where_the_csv_module_finds_them(text: str, block_bytes: int) -> None:
    content = text.encode()

    try:
        starts = starts_of(content, block_bytes)
    except UnclosedQuoteError:
        # The csv module ends an open quote at the end of the text: closing it changes nothing there.
        assert rows(text) == rows(text + '"')
        return

    records = [content[a:b].decode() for a, b in pairwise([*starts, len(content)])]
    assert [row for record in records for row in rows(record)] == rows(text)
    assert all(len(rows(record)) == 1 for record in records)


@given(texts, st.integers(1, 50))
def test_the_size_of_the_blocks_does_not_matter(text: str, block_bytes: int) -> None:
    content = text.encode() + b"\n"

    def starts_or_offset(size: int) -> list[int] | int:
        try:
            return starts_of(content, size)
        except UnclosedQuoteError as exc:
            return exc.offset

    assert starts_or_offset(block_bytes) == starts_or_offset(10_000)


def test_a_newline_inside_quotes_ends_no_record() -> None:
    assert starts_of(b'a,b\n"1\n2",3\n4,5\n') == [0, 4, 12]


def test_a_quote_inside_a_field_is_only_a_letter() -> None:
    assert starts_of(b'5" pipe,1\n7" pipe,2\nx,3\n') == [0, 10, 20]


def test_empty_lines_are_no_records_and_the_last_newline_may_be_missing() -> None:
    assert starts_of(b"a\n\n\r\nb\r\n\nc") == [0, 5, 9]
    assert starts_of(b"a\n\r") == [0]


def test_a_byte_order_mark_belongs_to_no_record() -> None:
    assert starts_of(BOM + b'"a",b\n1,2\n', 1) == [3, 9]


def test_a_quote_that_never_closes_names_its_record() -> None:
    with pytest.raises(UnclosedQuoteError) as caught:
        starts_of(b'a,b\n1,"2\n3,4\n')

    assert caught.value.offset == 4


def test_offsets_are_int64_and_reach_beyond_a_block() -> None:
    blocks = [b"x" * 99 + b"\n"] * 3

    assert np.concatenate(list(find_record_starts(blocks, b","))).dtype == np.int64
    assert starts_of(b"".join(blocks), 50) == [0, 100, 200]
