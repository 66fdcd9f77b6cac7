"""FarmHash's Fingerprint64 of the texts of an Arrow array, from which TensorFlow's `to_hash_bucket_fast` is computed.

The hash is computed by `native/src/farmhash.h`. `elasticdl.features.torch.fingerprint` computes it in operations of
torch for exported programs, and `elasticdl.features.preprocessing.standalone` in Python for rows that are served.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Fingerprints = NDArray[np.uint64]

EMPTY_TEXT = np.uint64(0x9AE16A3B2F90404F)  # the fingerprint of the empty text


def fingerprints(texts: Any) -> Fingerprints:
    """Returns the fingerprint of each value of an Arrow array of text or bytes; a null counts as the empty text."""
    import pyarrow as pa

    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if not pa.types.is_dictionary(texts.type):
        return _hash_texts(texts)
    by_code = np.append(_hash_texts(texts.dictionary), EMPTY_TEXT)  # the last is that of a null
    codes = texts.indices
    if codes.null_count:
        codes = codes.cast(pa.int64()).fill_null(len(by_code) - 1)
    hashes: Fingerprints = by_code[codes.to_numpy(zero_copy_only=False)]
    return hashes


def hash_buckets(texts: Any, bins: int) -> NDArray[np.int64]:
    """Returns the fingerprint modulo `bins`, as `tf.strings.to_hash_bucket_fast(texts, bins)`."""
    return (fingerprints(texts) % np.uint64(bins)).astype(np.int64)


def _hash_texts(texts: Any) -> Fingerprints:
    import pyarrow as pa

    from elasticdl.features import native_core

    if texts.null_count:
        texts = texts.fill_null(b"" if pa.types.is_binary(texts.type) or pa.types.is_large_binary(texts.type) else "")
    is_large = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    if not (is_large or pa.types.is_string(texts.type) or pa.types.is_binary(texts.type)):
        texts, is_large = texts.cast(pa.large_binary()), True
    _, ends, letters = texts.buffers()
    if not len(texts) or letters is None:
        return np.full(len(texts), EMPTY_TEXT)
    dtype: type[np.int64] | type[np.int32] = np.int64 if is_large else np.int32
    offsets: NDArray[Any] = np.frombuffer(ends, dtype)[texts.offset : texts.offset + len(texts) + 1]
    hashes = native_core.fingerprints(np.frombuffer(letters, np.uint8), offsets)
    return hashes.view(np.uint64)  # C's unsigned long, which NumPy writes otherwise
