"""Tensors of torch in a safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file

from elasticdl.checkpoint import file
from elasticdl.checkpoint.file import Described
from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.errors import CheckpointCorrupt, CheckpointFailed

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
    return file.write(path, {name: _described(name, tensor) for name, tensor in tensors.items()})


def read(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file that was verified before."""
    try:
        return dict(load_file(path))
    except (OSError, safetensors.SafetensorError) as exc:
        raise CheckpointCorrupt(f"{path} is not a safetensors file: {exc}") from exc


def _described(name: str, tensor: torch.Tensor) -> Described:
    if tensor.dtype not in DTYPES:
        raise CheckpointFailed(f"{name}: safetensors cannot hold {tensor.dtype}")
    content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
    return Described(DTYPES[tensor.dtype], tuple(tensor.shape), tensor.element_size(), [content])
