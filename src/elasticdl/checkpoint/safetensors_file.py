"""Writes a safetensors file and hashes it meanwhile, without torch.

The format is eight bytes of header length, a JSON header, then the tensors. Writing it here rather than by the library
saves a second pass over the file for its checksum, and a second copy in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticdl.checkpoint.manifest import FileEntry

CHUNK_BYTES = 4 << 20
_DTYPES = {"float32": "F32", "int64": "I64", "uint8": "U8"}


class TensorBytes(NamedTuple):
    """A tensor: its type as the format names it, its shape, and its bytes in pieces."""

    dtype: str
    shape: tuple[int, ...]
    item_bytes: int
    pieces: Sequence[memoryview]


def concatenate_arrays(*pieces: NDArray[Any]) -> TensorBytes:
    """A tensor of arrays that follow each other along its first dimension; contiguous arrays are not copied."""
    first = pieces[0]
    shape = (sum(len(piece) for piece in pieces), *first.shape[1:])
    contents = [np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data for piece in pieces if piece.size]
    return TensorBytes(_DTYPES[first.dtype.name], shape, first.itemsize, contents)


def write_tensors(
    path: Path, tensors: Mapping[str, TensorBytes], metadata: Mapping[str, str] | None = None
) -> FileEntry:
    """Write and sync a file; returns its entry for the manifest."""
    digest = hashlib.sha256()
    size = 0
    # Hashing and writing both release the interpreter lock: they take as long as the slower of the two.
    with path.open("wb", buffering=0) as file, ThreadPoolExecutor(1) as hasher:
        for chunk in _chunks(tensors, metadata):
            hashing = hasher.submit(digest.update, chunk)
            _write_all(file.fileno(), chunk)
            hashing.result()
            size += len(chunk)
        os.fsync(file.fileno())
    return FileEntry(size, digest.hexdigest())


def write_bytes(path: Path, content: bytes) -> FileEntry:
    """Write and sync a file of other content; returns its entry for the manifest."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(len(content), hashlib.sha256(content).hexdigest())


def _chunks(tensors: Mapping[str, TensorBytes], metadata: Mapping[str, str] | None) -> Iterator[memoryview]:
    # Tensors with the widest elements first: all are aligned without gaps, which the format does not allow.
    names = sorted(tensors, key=lambda name: (-tensors[name].item_bytes, name))
    yield memoryview(_header(names, tensors, metadata))
    for name in names:
        for piece in tensors[name].pieces:
            for start in range(0, len(piece), CHUNK_BYTES):
                yield piece[start : start + CHUNK_BYTES]


def _header(names: list[str], tensors: Mapping[str, TensorBytes], metadata: Mapping[str, str] | None) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name in names:
        dtype, shape, _, pieces = tensors[name]
        end = offset + sum(len(piece) for piece in pieces)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write_all(descriptor: int, chunk: memoryview) -> None:
    while chunk:
        chunk = chunk[os.write(descriptor, chunk) :]
