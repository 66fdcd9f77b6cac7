"""Images in CIFAR-10's binary files, and synthetic ones: python -m elasticdl.zoo.cifar10.data DIRECTORY

A record is a byte with the class and 3,072 bytes: red, green, blue, each by rows.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError

SIDE, CLASSES = 32, 10
RECORD = np.dtype([("label", "u1"), ("pixels", "u1", (3, SIDE, SIDE))])
TRAINING, TEST = 5000, 1000  # synthetic records

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class CifarImages:
    """Images and their classes, memory-mapped from files."""

    files: tuple[NDArray[np.void], ...]

    @classmethod
    def open(cls, data_path: str) -> CifarImages:
        """Opens a file, or all data_batch_*.bin of a directory."""
        path = Path(data_path)
        paths = sorted(path.glob("data_batch_*.bin")) if path.is_dir() else [path]
        if not paths:
            raise DataError(f"{path}: expected files named data_batch_*.bin in it, as CIFAR-10 has them")
        return cls(tuple(_map_file(file) for file in paths))

    def __len__(self) -> int:
        return sum(map(len, self.files))

    def __getitem__(self, index: int) -> tuple[Pixels, int]:
        """Returns pixels as [row, column, colour], and the class."""
        for file in self.files:
            if index < len(file):
                rows = file[index]
                return np.ascontiguousarray(rows["pixels"].transpose(1, 2, 0)), int(rows["label"])
            index -= len(file)
        raise IndexError(index)


def make_records(records: int, seed: int) -> NDArray[np.void]:
    """Makes images of stripes in random colours with noise; their direction is the class."""
    numbers = np.random.default_rng(seed)
    rows = np.empty(records, RECORD)
    rows["label"] = np.arange(records) % CLASSES
    angle = np.pi * rows["label"] / CLASSES
    row, column = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    along = np.cos(angle)[:, None, None] * column + np.sin(angle)[:, None, None] * row
    wavelength, phase = numbers.uniform(4, 10, (records, 1, 1)), numbers.uniform(0, 2 * np.pi, (records, 1, 1))
    stripes = (1 + np.sin(2 * np.pi * along / wavelength + phase)) / 2
    dark, light = numbers.uniform(0, 120, (records, 3, 1, 1)), numbers.uniform(135, 255, (records, 3, 1, 1))
    pixels = dark + (light - dark) * stripes[:, None] + numbers.normal(0, 20, (records, 3, SIDE, SIDE))
    rows["pixels"] = np.clip(pixels, 0, 255).astype(np.uint8)
    return rows


def write_data(directory: Path, training: int = TRAINING, test: int = TEST) -> tuple[Path, Path]:
    """Writes synthetic data_batch_1.bin and test_batch.bin, always the same; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = directory / "data_batch_1.bin", directory / "test_batch.bin"
    for seed, (path, records) in enumerate(zip(paths, (training, test), strict=True)):
        path.write_bytes(make_records(records, seed).tobytes())
    return paths


def _map_file(path: Path) -> NDArray[np.void]:
    try:
        size = path.stat().st_size
        if not size or size % RECORD.itemsize:
            raise DataError(f"{path}: expected records of {RECORD.itemsize} bytes. Received: {size} bytes")
        rows = np.memmap(path, RECORD, "r")
    except OSError as exc:
        raise DataError(f"{path}: cannot be read: {exc}") from exc
    if rows["label"].max() >= CLASSES:
        raise DataError(f"{path}: expected classes 0 to {CLASSES - 1}. Received: {rows['label'].max()}")
    return rows


if __name__ == "__main__":
    for path in write_data(Path(sys.argv[1] if len(sys.argv) > 1 else "data")):
        print(path)
