"""Tensors in a safetensors file, hashed while they are written.

The format is eight bytes of header length, a JSON header, then the tensors. Writing it here rather than through
the library saves a second pass over the file for its checksum, and a second copy in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file

from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.errors import CheckpointCorrupt, CheckpointFailed

CHUNK_BYTES = 4 << 20
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}


def write(path: Path, tensors: Mapping[str, torch.Tensor]) -> FileEntry:
    """Write and sync the file; returns what the manifest says of it."""
    digest = hashlib.sha256()
    size = 0
    # Hashing and writing both release the interpreter lock: the slower of the two sets the pace, not their sum.
    with path.open("wb", buffering=0) as file, ThreadPoolExecutor(1) as hasher:
        for chunk in _chunks(tensors):
            hashing = hasher.submit(digest.update, chunk)
            _write_all(file.fileno(), chunk)
            hashing.result()
            size += len(chunk)
        os.fsync(file.fileno())
    return FileEntry(size, digest.hexdigest())


def read(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file that was verified before."""
    try:
        return dict(load_file(path))
    except (OSError, safetensors.SafetensorError) as exc:
        raise CheckpointCorrupt(f"{path} is not a safetensors file: {exc}") from exc


def _chunks(tensors: Mapping[str, torch.Tensor]) -> Iterator[memoryview]:
    # Widest elements first keeps every tensor aligned without gaps, which the format does not allow.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    yield memoryview(_header(names, tensors))
    for name in names:
        content = tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data
        for start in range(0, len(content), CHUNK_BYTES):
            yield content[start : start + CHUNK_BYTES]


def _header(names: list[str], tensors: Mapping[str, torch.Tensor]) -> bytes:
    header: dict[str, dict[str, object]] = {}
    offset = 0
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in DTYPES:
            raise CheckpointFailed(f"{name}: safetensors cannot hold {tensor.dtype}")
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write_all(descriptor: int, chunk: memoryview) -> None:
    while chunk:
        chunk = chunk[os.write(descriptor, chunk) :]
