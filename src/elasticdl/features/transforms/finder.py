"""Where texts stand in a vocabulary: found by the native core where it is built, else by a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Finder = Callable[[Any], Places]
"""From an Arrow array of texts without nulls to their places; -1 for a text that is not in the vocabulary."""

NATIVE = "elasticdl.features.sql._counter"


def finder(vocabulary: Sequence[str], places: Callable[[], Mapping[bytes, int]]) -> Finder:
    """`places`, of each value's bytes, is asked for only where there is no native core."""
    return native(vocabulary) if find_spec(NATIVE) else plain(places())


def native(vocabulary: Sequence[str]) -> Finder:
    from elasticdl.features.sql import _counter

    encoded = [value.encode() for value in vocabulary]
    places = _counter.Places(b"".join(encoded), np.cumsum([len(value) for value in encoded], dtype=np.int64))

    def find(texts: Any) -> Places:
        values = _binary(texts)
        if not len(values):
            return np.empty(0, np.int64)
        _, offsets, letters = values.buffers()
        found = places.find(
            np.frombuffer(letters, np.uint8) if letters else np.empty(0, np.uint8),
            np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1],
        )
        return found.view(np.int64)  # C's long long, which NumPy writes otherwise

    return find


def plain(places: Mapping[bytes, int]) -> Finder:
    def find(texts: Any) -> Places:
        return np.fromiter(map(places.get, _binary(texts).to_pylist(), repeat(-1)), np.int64, len(texts))

    return find


def _binary(texts: Any) -> Any:
    import pyarrow as pa

    return texts.cast(pa.binary())
