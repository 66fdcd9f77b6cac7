"""Where texts stand in a vocabulary: found by the native core, or, where that is not built, by a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.features.values import Values

Places = NDArray[np.int64]
Finder = Callable[[Any], Places]
"""From an Arrow array of texts without nulls to their places; -1 for a text that is not in the vocabulary."""


def native(vocabulary: Sequence[str]) -> Finder:
    from elasticdl.features.sql import _counter

    places = _counter.Places(*Values.of(vocabulary).pieces)

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
