"""The 1,797 digits inside scikit-learn as two CSV files: python -m elasticdl.zoo.digits.data DIRECTORY"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

TEST_SHARE = 5  # one digit of so many is kept for the test


def write(directory: Path) -> tuple[Path, Path]:
    """Write train.csv and test.csv, the same ones every time; returns their paths."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    directory.mkdir(parents=True, exist_ok=True)
    is_test = np.arange(len(labels)) % TEST_SHARE == 0
    for name, rows in (("train.csv", ~is_test), ("test.csv", is_test)):
        with (directory / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*(f"pixel_{i}" for i in range(images.shape[1])), "label"])
            for image, label in zip(images[rows].astype(int).tolist(), labels[rows].tolist(), strict=True):
                writer.writerow([*image, label])
    return directory / "train.csv", directory / "test.csv"


if __name__ == "__main__":
    for path in write(Path(sys.argv[1] if len(sys.argv) > 1 else "data")):
        print(path)
