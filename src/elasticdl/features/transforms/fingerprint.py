"""FarmHash's Fingerprint64 of many texts at once, in NumPy: what TensorFlow's `to_hash_bucket_fast` counts by.

The algorithm is that of Google's FarmHash (farmhashna::Hash64), which is frozen: a text has the same fingerprint for
ever. Texts are hashed by classes of length (0 to 3, 4 to 7, 8 to 16, 17 to 32, 33 to 64, more bytes), each in one go;
arithmetic is that of unsigned 64 bits and wraps. Where texts repeat, each distinct one is hashed once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Places = NDArray[np.int64]

K0, K1, K2 = (np.uint64(number) for number in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))
SEED = 81
DICTIONARY_THRESHOLD = 4096  # texts; below it looking for repetition costs more than it saves
CHUNK_TEXTS = 8192  # texts hashed at once: what is between stays in the cache


def fingerprints(texts: Any) -> Words:
    """Of each value of an Arrow array of text or bytes; a null counts as the empty text."""
    import pyarrow as pa

    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if len(texts) >= DICTIONARY_THRESHOLD and not pa.types.is_dictionary(texts.type) and _is_repetitive(texts):
        texts = texts.dictionary_encode()
    if not pa.types.is_dictionary(texts.type):
        return _hash_texts(texts)
    hashed = np.append(_hash_texts(texts.dictionary), K2)  # the last is that of a null: the empty text's
    codes = texts.indices
    if codes.null_count:
        codes = codes.cast(pa.int64()).fill_null(len(hashed) - 1)
    found: Words = hashed[codes.to_numpy(zero_copy_only=False)]
    return found


def hash_buckets(texts: Any, bins: int) -> NDArray[np.int64]:
    """The fingerprint modulo `bins`, as `tf.strings.to_hash_bucket_fast(texts, bins)`."""
    return (fingerprints(texts) % np.uint64(bins)).astype(np.int64)


def _is_repetitive(texts: Any) -> bool:
    """Whether the first texts are mostly repetitions, so that encoding all of them pays."""
    head = texts.slice(0, DICTIONARY_THRESHOLD // 4)
    return bool(len(head.unique()) * 2 < len(head))


def _hash_texts(texts: Any) -> Words:
    import pyarrow as pa

    if texts.null_count:
        texts = texts.fill_null(b"" if pa.types.is_binary(texts.type) or pa.types.is_large_binary(texts.type) else "")
    is_large = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    if not (is_large or pa.types.is_string(texts.type) or pa.types.is_binary(texts.type)):
        texts, is_large = texts.cast(pa.large_binary()), True
    _, ends, letters = texts.buffers()
    if not len(texts) or letters is None:
        return np.full(len(texts), K2)
    bounds = np.frombuffer(ends, np.int64 if is_large else np.int32)[texts.offset : texts.offset + len(texts) + 1]
    starts = bounds[:-1].astype(np.int64)
    return hash_bytes(np.frombuffer(letters, np.uint8), starts, np.diff(bounds).astype(np.int64))


def hash_bytes(letters: NDArray[np.uint8], starts: Places, lengths: Places) -> Words:
    """Of the pieces of `letters` that begin at `starts` and are `lengths` long."""
    pieces = [slice(at, at + CHUNK_TEXTS) for at in range(0, len(starts), CHUNK_TEXTS)]
    return np.concatenate([np.empty(0, np.uint64), *(_hash_chunk(letters, starts[at], lengths[at]) for at in pieces)])


def _hash_chunk(letters: NDArray[np.uint8], starts: Places, lengths: Places) -> Words:
    hashed = np.full(len(starts), K2)
    classes = np.searchsorted(_LONGEST, lengths)
    only = classes[0]
    if (classes == only).all():  # the usual case of ids of one form: nothing to gather
        return _CLASSES[only](letters, starts, lengths) if only else hashed
    for number, function in enumerate(_CLASSES):
        if number and len(chosen := np.flatnonzero(classes == number)):
            hashed[chosen] = function(letters, starts[chosen], lengths[chosen])
    return hashed


def _fetch64(letters: NDArray[np.uint8], at: Places) -> Words:
    words: Words = np.ndarray(len(letters) - 7, "<u8", letters, strides=(1,))
    return words[at]


def _fetch32(letters: NDArray[np.uint8], at: Places) -> Words:
    words = np.ndarray(len(letters) - 3, "<u4", letters, strides=(1,))
    return words[at].astype(np.uint64)


def _rotate(value: Words, by: int) -> Words:
    return (value >> np.uint64(by)) | (value << np.uint64(64 - by))


def _mix(value: Words) -> Words:
    return value ^ (value >> np.uint64(47))


def _pair(u: Words, v: Words, multiplier: Words) -> Words:
    return _mix((v ^ _mix((u ^ v) * multiplier)) * multiplier) * multiplier


def _hash_to_3(letters: NDArray[np.uint8], starts: Places, lengths: Places) -> Words:
    first, middle, last = (
        letters[starts + at].astype(np.uint64) for at in (np.zeros_like(lengths), lengths >> 1, lengths - 1)
    )
    y = first + (middle << np.uint64(8))
    z = lengths.astype(np.uint64) + (last << np.uint64(2))
    return _mix(y * K2 ^ z * K0) * K2


def _hash_to_7(letters: NDArray[np.uint8], starts: Places, lengths: Places) -> Words:
    size = lengths.astype(np.uint64)
    head, tail = _fetch32(letters, starts), _fetch32(letters, starts + lengths - 4)
    return _pair(size + (head << np.uint64(3)), tail, K2 + size * np.uint64(2))


def _hash_to_16(letters: NDArray[np.uint8], starts: Places, lengths: Places) -> Words:
    multiplier = K2 + lengths.astype(np.uint64) * np.uint64(2)
    a, b = _fetch64(letters, starts) + K2, _fetch64(letters, starts + lengths - 8)
    return _pair(_rotate(b, 37) * multiplier + a, (_rotate(a, 25) + b) * multiplier, multiplier)


def _hash_to_32(letters: NDArray[np.uint8], starts: Places, lengths: Places) -> Words:
    multiplier = K2 + lengths.astype(np.uint64) * np.uint64(2)
    ends = starts + lengths
    a, b = _fetch64(letters, starts) * K1, _fetch64(letters, starts + 8)
    c, d = _fetch64(letters, ends - 8) * multiplier, _fetch64(letters, ends - 16) * K2
    return _pair(_rotate(a + b, 43) + _rotate(c, 30) + d, a + _rotate(b + K2, 18) + c, multiplier)


def _hash_to_64(letters: NDArray[np.uint8], starts: Places, lengths: Places) -> Words:
    multiplier = K2 + lengths.astype(np.uint64) * np.uint64(2)
    ends = starts + lengths
    a, b = _fetch64(letters, starts) * K2, _fetch64(letters, starts + 8)
    c, d = _fetch64(letters, ends - 8) * multiplier, _fetch64(letters, ends - 16) * K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    z = _pair(y, a + _rotate(b + K2, 18) + c, multiplier)
    e, f = _fetch64(letters, starts + 16) * multiplier, _fetch64(letters, starts + 24)
    g = (y + _fetch64(letters, ends - 32)) * multiplier
    h = (z + _fetch64(letters, ends - 24)) * multiplier
    return _pair(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, multiplier)


def _weak(letters: NDArray[np.uint8], at: Places, a: Words, b: Words) -> tuple[Words, Words]:
    w, x, y, z = (_fetch64(letters, at + shift) for shift in (0, 8, 16, 24))
    a = a + w
    b = _rotate(b + a + z, 21)
    total = a + x + y
    return total + z, b + _rotate(total, 44) + a


class _State:
    """Of the long texts: seven words for each, mixed with 64 bytes at a time."""

    def __init__(self, first: Words) -> None:
        size = len(first)
        y = np.full(size, SEED, np.uint64) * K1 + np.uint64(113)
        self.x, self.y, self.z = np.full(size, SEED, np.uint64) * K2 + first, y, _mix(y * K2 + np.uint64(113)) * K2
        self.v, self.w = (np.zeros(size, np.uint64),) * 2, (np.zeros(size, np.uint64),) * 2

    def stir(self, letters: NDArray[np.uint8], at: Places, multiplier: Any, nine: int = 1) -> None:
        x = _rotate(self.x + self.y + self.v[0] + _fetch64(letters, at + 8), 37) * multiplier
        y = _rotate(self.y + self.v[1] + _fetch64(letters, at + 48), 42) * multiplier
        x = x ^ self.w[1] * np.uint64(nine)
        y = y + self.v[0] * np.uint64(nine) + _fetch64(letters, at + 40)
        z = _rotate(self.z + self.w[0], 33) * multiplier
        self.v = _weak(letters, at, self.v[1] * multiplier, x + self.w[0])
        self.w = _weak(letters, at + 32, z + self.w[1], y + _fetch64(letters, at + 16))
        self.x, self.y, self.z = z, y, x


def _hash_over_64(letters: NDArray[np.uint8], starts: Places, lengths: Places) -> Words:
    """One number of 64-byte blocks at a time."""
    blocks = (lengths - 1) // 64
    hashed = np.empty(len(starts), np.uint64)
    for count in np.unique(blocks):
        chosen = np.flatnonzero(blocks == count)
        at, rest = starts[chosen], (lengths[chosen] - 1) & 63
        state = _State(_fetch64(letters, at))
        for block in range(count):
            state.stir(letters, at + 64 * block, K1)
        multiplier = K1 + ((state.z & np.uint64(255)) << np.uint64(1))
        w = state.w[0] + rest.astype(np.uint64)
        v = state.v[0] + w
        state.v, state.w = (v, state.v[1]), (w + v, state.w[1])
        state.stir(letters, at + 64 * count + rest - 63, multiplier, nine=9)
        left = _pair(state.v[0], state.w[0], multiplier) + _mix(state.y) * K0 + state.z
        hashed[chosen] = _pair(left, _pair(state.v[1], state.w[1], multiplier) + state.x, multiplier)
    return hashed


_LONGEST = np.array([0, 3, 7, 16, 32, 64])
_CLASSES = (_hash_to_3, _hash_to_3, _hash_to_7, _hash_to_16, _hash_to_32, _hash_to_64, _hash_over_64)
