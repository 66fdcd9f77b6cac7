"""The treatments of ctr_quality.py: what a row is told never comes from its own label, nor from later parts."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np

from benchmarks.ctr.rows import ABSENT, Raw, fielded, log_square, read, told, treated
from elasticdl.features.layout import FIELD_BITS, MISSING, UNKNOWN

ROWS, TRAIN = 400, 320


def raw(seed: int = 0) -> Raw:
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 30, (ROWS, 13)).astype(np.float64)
    values = random.integers(0, 20, (ROWS, 26))
    numbers[::7], values[::5] = np.nan, ABSENT
    return Raw((random.random(ROWS) < 0.3).astype(np.float32), numbers, values, TRAIN, 40)


def test_rare_values_are_unknown_and_missing_ones_missing() -> None:
    column = np.array([5, 5, 7, 7, 7, 9, ABSENT, 5, 9, 11])

    values, size = fielded(column, train=7, least=2)

    assert values.tolist() == [2, 2, 3, 3, 3, UNKNOWN, MISSING, 2, UNKNOWN, UNKNOWN]
    assert size == 4


def test_small_numbers_stay_apart_from_squared_logarithms() -> None:
    found = log_square(np.array([np.nan, -1.0, 0.0, 1.0, 2.0, 3.0, 1000.0]))

    assert found.tolist() == [ABSENT, 3, 4, 5, 6, 11, 57]


def test_the_labels_of_later_parts_change_nothing() -> None:
    one = raw()
    other = Raw(np.where(np.arange(ROWS) < TRAIN, one.labels, 1 - one.labels), one.numbers, one.values, TRAIN, 40)

    for mine, theirs in zip(treated(one)[1:], treated(other)[1:], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_no_row_is_told_its_own_label() -> None:
    one = raw()
    column = one.values[:, 0].copy()
    column[3] = 999  # a value that no other row has
    other = int(np.flatnonzero(one.labels[:TRAIN] != one.labels[3])[0])
    swapped = one.labels.copy()
    swapped[[3, other]] = swapped[[other, 3]]  # the mean stays as it is

    assert told(column, one.labels, TRAIN)[3, 0] == told(column, swapped, TRAIN)[3, 0]


def test_a_front_gives_ids_with_their_field_and_finite_numbers() -> None:
    layout, ids, numbers = treated(raw())

    assert (ids >> FIELD_BITS == np.arange(39)).all()
    assert ((ids & ((1 << FIELD_BITS) - 1)) < [field.size for field in layout.fields]).all()
    assert numbers.shape == (ROWS, len(layout.numbers)) and np.isfinite(numbers).all()


def test_a_file_is_split_by_time(tmp_path: Path) -> None:
    lines = [f"{n % 2}\t" + "\t".join(["3"] * 12 + [""]) + "\t" + "\t".join(["ff"] * 25 + [""]) for n in range(10)]
    with lzma.open(tmp_path / "rows.xz", "wt") as file:
        file.write("\n".join(lines) + "\n")

    found = read(tmp_path / "rows.xz")

    assert (len(found.labels), found.train, found.valid) == (10, 8, 1)
    assert np.isnan(found.numbers[:, 12]).all() and (found.values[:, 25] == ABSENT).all()
    assert (found.values[:, 0] == 255).all() and len(found.cut().labels) == 9
