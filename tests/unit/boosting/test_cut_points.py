"""Bins instead of values: the same trees, byte for byte."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xgboost import Booster, QuantileDMatrix

from elasticdl.boosting.cut_points import CutPoints
from elasticdl.boosting.gradients import Floats
from tests.properties import examples

ROWS = 400
ODD_COLUMNS = ("constant", "missing", "zeros", "two", "huge", "negative", "one value")


def make_rows(seed: int = 0, rows: int = ROWS) -> Floats:
    """Rows of ordinary columns and of each odd one."""
    draw = np.random.default_rng(seed)
    plain = draw.normal(size=(rows, 3))
    plain[draw.random(plain.shape) < 0.1] = math.nan
    odd = {
        "constant": np.full(rows, 7.5),
        "missing": np.full(rows, math.nan),
        "zeros": np.zeros(rows),
        "two": draw.integers(2, size=rows),
        "huge": draw.normal(size=rows) * 1e30,
        "negative": -draw.random(rows) - 5,
        "one value": np.where(np.arange(rows) == rows // 2, -3.0, math.nan),
    }
    return np.column_stack([plain, *(odd[name] for name in ODD_COLUMNS)]).astype(np.float32)


def train(data: QuantileDMatrix, labels: Floats, max_bin: int) -> str:
    data.set_label(labels)
    booster = Booster({"max_depth": 4, "max_bin": max_bin, "nthread": 1, "base_score": 0.5}, [data])
    for round_ in range(8):
        booster.update(data, round_)
    return hashlib.sha256(booster.save_raw("json")).hexdigest()


@pytest.mark.parametrize("max_bin", [4, 64, 256])
def test_trees_are_the_same_as_from_the_values(max_bin: int) -> None:
    rows = make_rows()
    labels = np.nan_to_num(rows[:, 0]) + rows[:, 6]
    cuts = CutPoints.sketch(rows, max_bin, threads=1)
    own = QuantileDMatrix(rows, max_bin=max_bin, nthread=1)
    decoded = cuts.decode(cuts.encode(rows))

    binned = QuantileDMatrix(decoded, max_bin=max_bin, nthread=1, ref=cuts.make_reference(max_bin, threads=1))

    assert train(binned, labels, max_bin) == train(own, labels, max_bin)


@pytest.mark.parametrize("max_bin", [2, 16, 256])
def test_a_reference_has_the_same_cut_points(max_bin: int) -> None:
    cuts = CutPoints.sketch(make_rows(), max_bin, threads=1)

    starts, ends = cuts.make_reference(max_bin, threads=1).get_quantile_cut()

    assert np.array_equal(starts, cuts.starts)
    assert np.array_equal(ends, cuts.ends)


@given(st.integers(0, 1000), st.sampled_from([2, 16, 255, 256, 300]))
@settings(max_examples=examples(30))
def test_a_value_that_is_read_back_is_in_the_same_bin(seed: int, max_bin: int) -> None:
    cuts = CutPoints.sketch(make_rows(0), max_bin, threads=1)
    rows = make_rows(seed, 200)  # others than those of the sample

    numbers = cuts.encode(rows)
    decoded = cuts.decode(numbers)

    assert np.array_equal(cuts.encode(decoded), numbers)
    known = cuts.bins > 0
    assert np.array_equal(np.isnan(decoded[:, known]), np.isnan(rows[:, known]))


def test_bins_take_a_byte_where_there_are_few() -> None:
    rows = make_rows()

    assert CutPoints.sketch(rows, 255, threads=1).encode(rows).itemsize == 1
    assert CutPoints.sketch(make_rows(0, 2000), 300, threads=1).encode(rows).itemsize == 2
