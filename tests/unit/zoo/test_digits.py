from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np

from elasticdl.zoo.digits import data


def test_the_same_digits_are_drawn_everywhere(tmp_path: Path) -> None:
    train, test = data.write_data(tmp_path / "data")

    digests = [sha256(path.read_bytes()).hexdigest()[:16] for path in (train, test)]
    assert digests == ["ab255620e8dfd079", "a031c3a89c5d4bb3"]


def test_each_digit_is_drawn_equally_often_and_within_its_pixels() -> None:
    images, labels = data.draw_digits()

    assert images.shape == (data.DIGITS, data.PIXELS) and images.max() <= data.BRIGHTEST
    counts = np.bincount(labels, minlength=10)
    assert counts.min() >= counts.max() - 1


def test_another_seed_draws_others() -> None:
    assert not np.array_equal(data.draw_digits(0)[0], data.draw_digits(1)[0])
