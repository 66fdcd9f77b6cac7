"""The idx files MNIST comes in, as a map-style dataset of (image, label)."""

from __future__ import annotations

import gzip
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class IdxImages:
    """Images and labels. Plain files are memory-mapped; a compressed one is unpacked into memory once."""

    images: Pixels
    labels: Pixels

    @classmethod
    def open(cls, images: str) -> IdxImages:
        """Opens the images file and the labels file beside it (`-images-idx3-` → `-labels-idx1-`)."""
        path = Path(images)
        labels = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
        if labels == path:
            raise DataError(f"{path}: expected a name like train-images-idx3-ubyte")
        dataset = cls(_read(path, dimensions=3), _read(labels, dimensions=1))
        if len(dataset.images) != len(dataset.labels):
            raise DataError(f"{path} has {len(dataset.images)} images, but {labels} has {len(dataset.labels)} labels")
        return dataset

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Pixels, int]:
        return self.images[index], int(self.labels[index])


def _read(path: Path, dimensions: int) -> Pixels:
    try:
        content = _content(path)
    except (OSError, lzma.LZMAError, EOFError) as exc:
        raise DataError(f"{path}: cannot be read: {exc}") from exc
    header_bytes = 4 + 4 * dimensions
    if len(content) < header_bytes or content[:4].tolist() != [0, 0, 8, dimensions]:
        raise DataError(f"{path}, byte 0: expected the header of an idx file of bytes with {dimensions} dimensions")
    shape = [int(size) for size in np.frombuffer(content[4:header_bytes].tobytes(), dtype=">u4")]
    expected = header_bytes + int(np.prod(shape, dtype=np.int64))
    if len(content) != expected:
        raise DataError(f"{path}, byte {len(content)}: expected {expected} bytes for {shape}; the file is truncated")
    return content[header_bytes:].reshape(shape)


def _content(path: Path) -> Pixels:
    unpack: Any = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix)
    if unpack is None:
        return np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
    with unpack(path, "rb") as file:
        return np.frombuffer(file.read(), dtype=np.uint8)
