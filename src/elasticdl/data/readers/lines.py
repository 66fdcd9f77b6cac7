"""Finds where the records of a CSV or JSON-lines file begin, exactly as Python's csv module splits them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.interface import Indices

BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN, _QUOTE = 0x0A, 0x0D, 0x22
_NEXT_QUOTE = re.compile(rb'""|"')


class UnclosedQuoteError(Exception):
    """A quoted field never ends. `offset` is the start of its record."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def find_record_starts(blocks: Iterable[bytes], delimiter: bytes | None) -> Iterator[Indices]:
    """Yields the offsets of all records in order; empty lines are no records. `blocks` is the whole file.

    Without a delimiter every newline ends a record, because JSON has none inside its strings.
    """
    position = 0  # of the block's first byte
    start = 0  # of the record that has not ended yet
    previous = _NEWLINE  # the byte before the block
    in_quotes = False
    for block in _merge_split_blocks(blocks):
        if position == 0 and block.startswith(BOM):
            position = start = len(BOM)
            block = block[len(BOM) :]
        octets = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(octets == _NEWLINE)
        if delimiter is not None and (in_quotes or b'"' in block):
            ends, in_quotes = _newlines_outside_quotes(block, octets, ends, in_quotes, previous, delimiter)
        if len(ends):
            starts = np.empty(len(ends), dtype=np.int64)
            starts[0] = start
            starts[1:] = ends[:-1] + (position + 1)
            yield starts[~_are_empty(starts - position, ends, octets, previous)]
            start = int(ends[-1]) + position + 1
        position += len(block)
        previous = block[-1] if block else previous
    if in_quotes:
        raise UnclosedQuoteError(start)
    if start < position and not (start == position - 1 and previous == _RETURN):
        yield np.array([start], dtype=np.int64)  # the last line has no newline


def _merge_split_blocks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    # No block ends between two quotes or inside the byte order mark, so that each block can be scanned by itself.
    pending = b""
    for block in blocks:
        pending += block
        if len(pending) > len(BOM) and pending[-1] != _QUOTE:
            yield pending
            pending = b""
    if pending:
        yield pending


def _are_empty(starts: Indices, ends: Indices, octets: NDArray[np.uint8], previous: int) -> NDArray[np.bool_]:
    # A line is empty if it has nothing, or only a carriage return, before its newline.
    lengths = ends - starts
    first = octets[np.maximum(starts, 0)]
    if starts[0] < 0:
        first[0] = previous
    empty: NDArray[np.bool_] = (lengths == 0) | ((lengths == 1) & (first == _RETURN))
    return empty


def _newlines_outside_quotes(
    block: bytes, octets: NDArray[np.uint8], newlines: Indices, in_quotes: bool, previous: int, delimiter: bytes
) -> tuple[Indices, bool]:
    """Returns the newlines that end a record, and whether the block ends inside quotes."""
    quotes = np.flatnonzero(octets == _QUOTE)
    opening = quotes[int(in_quotes) :: 2]
    before = octets[np.maximum(opening - 1, 0)]
    if len(opening) and opening[0] == 0:
        before[0] = previous
    if np.all((before == delimiter[0]) | (before == _NEWLINE) | (before == _RETURN) | (before == _QUOTE)):
        # Every opening quote is at the beginning of a field, so counting quotes is enough.
        inside = (np.searchsorted(quotes, newlines) + in_quotes) % 2 == 1
        return newlines[~inside], (len(quotes) + in_quotes) % 2 == 1
    spans, in_quotes = _quoted_spans(block, in_quotes, previous, delimiter)
    first, last = spans[:, 0], spans[:, 1]
    nearest = np.searchsorted(first, newlines, side="right") - 1
    inside = (nearest >= 0) & (newlines < last[np.maximum(nearest, 0)])
    return newlines[~inside], in_quotes


def _quoted_spans(block: bytes, in_quotes: bool, previous: int, delimiter: bytes) -> tuple[Indices, bool]:
    """Returns the ranges of the block inside quotes, field by field, for files with stray quotes."""
    opening = re.compile(rb'(?<=[\r\n%b])"' % re.escape(delimiter))
    text = bytes([previous]) + block
    spans = [(0, 0)]
    cursor = start = 1
    while True:
        if not in_quotes:
            match = opening.search(text, cursor)
            if match is None:
                break
            cursor = start = match.end()
            in_quotes = True
        closing = next((quote for quote in _NEXT_QUOTE.finditer(text, cursor) if quote.group() == b'"'), None)
        cursor = closing.end() if closing else len(text)
        spans.append((start - 1, cursor - 1))
        if closing is None:
            break
        in_quotes = False
    return np.array(spans, dtype=np.int64), in_quotes
