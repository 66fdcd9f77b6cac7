"""Vocabularies in little memory: one buffer for all letters and one for all counts, a fifth of the size of objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator

_CHUNK_VALUES = 4096


class PackedStrings(Sequence[str]):
    """Behaves like a tuple of strings and equals one. Value i is `letters[ends[i - 1]:ends[i]]`, in UTF-8."""

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
        """The letters of all values, and the index where each value ends."""
        return self._letters, self._ends

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return tuple(self._decode_values(start, stop))
            return tuple(self[position] for position in range(start, stop, step))
        position = range(len(self))[index]
        return next(iter(self._decode_values(position, position + 1)))

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _CHUNK_VALUES):
            yield from self._decode_values(start, min(start + _CHUNK_VALUES, len(self)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedStrings):
            return self._letters == other._letters and np.array_equal(self._ends, other._ends)
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _decode_values(self, start: int, stop: int) -> Iterator[str]:
        begin = int(self._ends[start - 1]) if start else 0
        for end in self._ends[start:stop].tolist():
            yield self._letters[begin:end].decode()
            begin = end


class PackedCounts(Sequence[int]):
    """Behaves like a tuple of whole numbers and equals one."""

    __slots__ = ("_counts",)

    def __init__(self, counts: NDArray[np.int64]) -> None:
        self._counts = counts

    def __len__(self) -> int:
        return len(self._counts)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return tuple(self._counts[index].tolist()) if isinstance(index, slice) else int(self._counts[index])

    def __iter__(self) -> Iterator[int]:
        for start in range(0, len(self), _CHUNK_VALUES):
            yield from self._counts[start : start + _CHUNK_VALUES].tolist()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedCounts):
            return np.array_equal(self._counts, other._counts)
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def _check_counts(value: Any) -> Sequence[int]:
    if isinstance(value, PackedCounts):
        return value
    # In Python True is an int; here it is not a count.
    if not isinstance(value, list | tuple) or not all(type(count) is int for count in value):
        raise ValueError("expected a list of whole numbers")
    return tuple(value)


def _check_strings(value: Any) -> Sequence[str]:
    if isinstance(value, PackedStrings):
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise ValueError("expected a list of texts")
    return tuple(value)


StringsField = Annotated[Sequence[str], PlainValidator(_check_strings), PlainSerializer(list, return_type=list[str])]
"""A field of a pydantic model for many strings that do not change."""

CountsField = Annotated[Sequence[int], PlainValidator(_check_counts), PlainSerializer(list, return_type=list[int])]
"""A field of a pydantic model for many whole numbers that do not change."""
