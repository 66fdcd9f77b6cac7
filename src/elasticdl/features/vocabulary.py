"""Vocabularies in little memory: one buffer for all letters, one for all counts; a fifth of what objects would take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator

_PIECE = 4096


class PackedStrings(Sequence[str]):
    """Like a tuple of strings, and equal to one with the same. Value i is `letters[ends[i - 1]:ends[i]]`, in UTF-8."""

    __slots__ = ("_ends", "_letters")

    def __init__(self, letters: bytes, ends: NDArray[np.int64]) -> None:
        self._letters = letters
        self._ends = ends

    @classmethod
    def from_strings(cls, values: Sequence[str]) -> PackedStrings:
        encoded = [value.encode() for value in values]
        return cls(b"".join(encoded), np.cumsum([len(value) for value in encoded], dtype=np.int64))

    @property
    def buffers(self) -> tuple[bytes, NDArray[np.int64]]:
        """The letters, and where each value ends."""
        return self._letters, self._ends

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            return tuple(self._cut(start, stop)) if step == 1 else tuple(self[at] for at in range(start, stop, step))
        at = range(len(self))[place]
        return next(iter(self._cut(at, at + 1)))

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _PIECE):
            yield from self._cut(start, min(start + _PIECE, len(self)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedStrings):
            return self._letters == other._letters and np.array_equal(self._ends, other._ends)
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _cut(self, start: int, stop: int) -> Iterator[str]:
        begin = int(self._ends[start - 1]) if start else 0
        for end in self._ends[start:stop].tolist():
            yield self._letters[begin:end].decode()
            begin = end


class PackedCounts(Sequence[int]):
    """Like a tuple of whole numbers, and equal to one with the same."""

    __slots__ = ("_counts",)

    def __init__(self, counts: NDArray[np.int64]) -> None:
        self._counts = counts

    def __len__(self) -> int:
        return len(self._counts)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[int, ...]: ...
    def __getitem__(self, place: int | slice) -> int | tuple[int, ...]:
        return tuple(self._counts[place].tolist()) if isinstance(place, slice) else int(self._counts[place])

    def __iter__(self) -> Iterator[int]:
        for start in range(0, len(self), _PIECE):
            yield from self._counts[start : start + _PIECE].tolist()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedCounts):
            return np.array_equal(self._counts, other._counts)
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def _check_counts(found: Any) -> Sequence[int]:
    if isinstance(found, PackedCounts):
        return found
    # True is a whole number for Python, and not for us.
    if not isinstance(found, list | tuple) or not all(type(count) is int for count in found):
        raise ValueError("expected a list of whole numbers")
    return tuple(found)


def _check_strings(found: Any) -> Sequence[str]:
    if isinstance(found, PackedStrings):
        return found
    if not isinstance(found, list | tuple) or not all(isinstance(value, str) for value in found):
        raise ValueError("expected a list of texts")
    return tuple(found)


StringsField = Annotated[Sequence[str], PlainValidator(_check_strings), PlainSerializer(list, return_type=list[str])]
"""A field of a model: many strings, that do not change."""

CountsField = Annotated[Sequence[int], PlainValidator(_check_counts), PlainSerializer(list, return_type=list[int])]
"""A field of a model: many whole numbers, that do not change."""
