"""1,797 digits of 8 by 8 pixels as two CSV files: python -m elasticdl.zoo.digits.data DIRECTORY

The images are synthetic and always the same: the shapes of a small font, shifted, blurred, dimmed and with noise.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

DIGITS = 1797
SIDE = 8
PIXELS = SIDE * SIDE
BRIGHTEST = 16
TEST_SHARE = 5  # one of this many digits is in the test file

_SHAPES = (
    (" ### ", "#   #", "#   #", "#   #", "#   #", "#   #", " ### "),
    ("  #  ", " ##  ", "# #  ", "  #  ", "  #  ", "  #  ", "#####"),
    (" ### ", "#   #", "    #", "  ## ", " #   ", "#    ", "#####"),
    (" ### ", "#   #", "    #", "  ## ", "    #", "#   #", " ### "),
    ("   # ", "  ## ", " # # ", "#  # ", "#####", "   # ", "   # "),
    ("#####", "#    ", "#### ", "    #", "    #", "#   #", " ### "),
    (" ### ", "#    ", "#    ", "#### ", "#   #", "#   #", " ### "),
    ("#####", "    #", "   # ", "  #  ", "  #  ", " #   ", " #   "),
    (" ### ", "#   #", "#   #", " ### ", "#   #", "#   #", " ### "),
    (" ### ", "#   #", "#   #", " ####", "    #", "    #", " ### "),
)

Images = np.ndarray[Any, np.dtype[np.uint8]]


def draw_digits(seed: int = 0) -> tuple[Images, Images]:
    """Returns the images, 64 values from 0 to 16 each, and the digits they show."""
    random = np.random.RandomState(seed)  # its numbers are the same in every version of NumPy
    labels = random.permutation(np.arange(DIGITS) % 10).astype(np.uint8)
    shapes = np.array([[[dot == "#" for dot in row] for row in shape] for shape in _SHAPES], dtype=np.float64)
    rows, columns = shapes.shape[1:]
    canvas = np.zeros((DIGITS, SIDE, SIDE))
    for image, label in zip(canvas, labels.tolist(), strict=True):
        top, left = random.randint(SIDE - rows + 1), 1 + random.randint(2)
        image[top : top + rows, left : left + columns] = shapes[label]
    blurred = canvas + 0.5 * random.rand(DIGITS, 1, 1) * (np.roll(canvas, 1, axis=1) + np.roll(canvas, 1, axis=2))
    dimmed = blurred * random.uniform(0.5, 1.0, (DIGITS, 1, 1)) + random.normal(0.0, 0.1, canvas.shape)
    return (np.clip(dimmed, 0, 1) * BRIGHTEST).round().astype(np.uint8).reshape(DIGITS, PIXELS), labels


def write_data(directory: Path) -> tuple[Path, Path]:
    """Writes train.csv and test.csv, always the same; returns their paths."""
    images, labels = draw_digits()
    directory.mkdir(parents=True, exist_ok=True)
    is_test = np.arange(len(labels)) % TEST_SHARE == 0
    for name, rows in (("train.csv", ~is_test), ("test.csv", is_test)):
        with (directory / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*(f"pixel_{i}" for i in range(PIXELS)), "label"])
            for image, label in zip(images[rows].tolist(), labels[rows].tolist(), strict=True):
                writer.writerow([*image, label])
    return directory / "train.csv", directory / "test.csv"


if __name__ == "__main__":
    for path in write_data(Path(sys.argv[1] if len(sys.argv) > 1 else "data")):
        print(path)
