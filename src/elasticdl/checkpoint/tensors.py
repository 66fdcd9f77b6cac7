"""Tensors of torch in a safetensors file.

The format has no complex128: such a tensor is stored as float64 with a last dimension of 2, and named in the metadata
of the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors
import torch

from elasticdl.checkpoint import safetensors_file
from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.checkpoint.safetensors_file import TensorBytes
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


_COMPLEX128 = "complex128"  # the key of the metadata


def can_hold(dtype: torch.dtype) -> bool:
    """Whether checkpoints can store a tensor of this type."""
    return dtype in DTYPES or dtype == torch.complex128


def write_torch_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> FileEntry:
    """Write and sync the file; returns its entry for the manifest."""
    split = [name for name, tensor in tensors.items() if tensor.dtype == torch.complex128]
    parts = {name: torch.view_as_real(t.resolve_conj()) if name in split else t for name, t in tensors.items()}
    metadata = {_COMPLEX128: json.dumps(split)} if split else None
    return safetensors_file.write_tensors(
        path, {name: _tensor_bytes(name, tensor) for name, tensor in parts.items()}, metadata
    )


def read_torch_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a file that is already verified."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            split = json.loads((file.metadata() or {}).get(_COMPLEX128, "[]"))
    except (OSError, safetensors.SafetensorError) as exc:
        raise CheckpointCorrupt(f"{path} is not a safetensors file: {exc}") from exc
    return tensors | {name: torch.view_as_complex(tensors[name]) for name in split}


def _tensor_bytes(name: str, tensor: torch.Tensor) -> TensorBytes:
    if tensor.dtype not in DTYPES:
        raise CheckpointFailed(f"{name}: safetensors cannot store {tensor.dtype}")
    content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
    return TensorBytes(DTYPES[tensor.dtype], tuple(tensor.shape), tensor.element_size(), [content])
