"""Lists in one text: split, encoded, and filled up to the longest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from elasticdl.features.layout import FIELD_BITS, PADDING
from elasticdl.features.raw import Texts


def padded(
    texts: Texts, sep: str, longest: int, encode: Callable[[Any], NDArray[np.int64]], field: int
) -> NDArray[np.int64]:
    """[rows, longest]: the last `longest` values of each row as ids of `field`, then -1. Empty values are left out."""
    lists = pc.split_pattern(texts.distinct, sep)
    counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = lists.flatten()
    owner = np.repeat(np.arange(len(counts)), counts)
    is_full = pc.not_equal(flat, "").to_numpy(zero_copy_only=False)
    owner, flat = owner[is_full], flat.filter(pa.array(is_full))
    counts = np.bincount(owner, minlength=len(counts))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else np.zeros(0, np.int64)
    place = np.arange(len(owner)) - starts[owner] - np.maximum(counts - longest, 0)[owner]
    kept = place >= 0
    made = np.full((len(counts) + 1, longest), PADDING, np.int64)  # the last is of a missing text
    encoded = flat.dictionary_encode()
    ids = (
        encode(encoded.dictionary)[encoded.indices.to_numpy(zero_copy_only=False)]
        if len(flat)
        else np.zeros(0, np.int64)
    )
    made[owner[kept], place[kept]] = ids[kept] + (field << FIELD_BITS)
    return made[texts.codes]
