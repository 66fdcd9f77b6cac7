"""Models that are put together from several boosters: the bytes of one that was never interrupted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xgboost import Booster, QuantileDMatrix

from elasticdl.boosting.forest import merge_boosters
from tests.properties import examples

ROWS, ROUNDS = 200, 6
PARAMS: dict[str, dict[str, Any]] = {
    "binary": {"objective": "binary:logistic", "base_score": 0.3},
    "classes": {"objective": "multi:softprob", "num_class": 3, "base_score": 0.5},
    "forest": {"objective": "reg:squarederror", "num_parallel_tree": 3, "base_score": 0.0},
    "categories": {"objective": "reg:squarederror", "base_score": 0.0, "max_cat_to_onehot": 1},
}


def make_data(kind: str) -> QuantileDMatrix:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(ROWS, 4)).astype(np.float32)
    rows[:, 3] = draw.integers(5, size=ROWS)
    labels = draw.integers(3 if kind == "classes" else 2, size=ROWS)
    types = ["float", "float", "float", "c" if kind == "categories" else "float"]
    return QuantileDMatrix(
        rows, labels, feature_names=["a", "b", "c", "d"], feature_types=types, enable_categorical=True, nthread=1,
    )  # fmt: skip


def grow(kind: str, first: int, last: int, margins: Any = None) -> tuple[Booster, Any]:
    """A booster that grows these rounds on top of margins, and the margins after that."""
    data = make_data(kind)
    params = PARAMS[kind] | {"max_depth": 3, "nthread": 1, "seed": 1, "seed_per_iteration": True}
    if margins is not None:
        data.set_base_margin(margins)
    booster = Booster(params, [data])
    for round_ in range(first, last):
        booster.update(data, round_)
    return booster, booster.predict(data, output_margin=True, training=True)


def test_names_cannot_be_mistaken_for_keys() -> None:
    data = make_data("binary")
    data.feature_names = ['"trees":(', '"iteration_indptr":(', "\\", '"name":"gbtree"}']
    booster = Booster({"nthread": 1, "base_score": 0.5}, [data])
    booster.update(data, 0)

    merged = merge_boosters([booster, booster])

    assert merged.feature_names == data.feature_names
    assert merged.num_boosted_rounds() == 2


@pytest.mark.parametrize("kind", PARAMS)
def test_the_bytes_are_those_of_one_booster(kind: str) -> None:
    whole, _ = grow(kind, 0, ROUNDS)
    boosters, margins = [], None
    for first, last in ((0, 1), (1, 4), (4, ROUNDS)):
        booster, margins = grow(kind, first, last, margins)
        boosters.append(booster)

    merged = merge_boosters(boosters)

    for form in ("json", "ubj"):
        assert merged.save_raw(form) == whole.save_raw(form)


def test_sampled_columns_depend_on_the_round_alone_where_each_has_a_booster_of_its_own() -> None:
    """XGBoost's sampler of columns goes on from tree to tree of a booster."""
    data = make_data("binary")
    params = {"nthread": 1, "base_score": 0.5, "seed_per_iteration": True, "colsample_bynode": 0.5, "seed": 7}

    def grow_alone(round_: int) -> bytes:
        booster = Booster(params, [data])
        booster.update(data, round_)
        return bytes(booster.save_raw("json"))

    forwards = [grow_alone(round_) for round_ in range(4)]

    assert [grow_alone(round_) for round_ in reversed(range(4))] == forwards[::-1]
    assert len(set(forwards)) == 4


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5))
@settings(max_examples=examples(10))
def test_boosters_of_any_length_are_merged(lengths: list[int]) -> None:
    whole, _ = grow("classes", 0, sum(lengths))
    boosters, margins, first = [], None, 0
    for length in lengths:
        booster, margins = grow("classes", first, first + length, margins)
        boosters.append(booster)
        first += length

    assert merge_boosters(boosters).save_raw("json") == whole.save_raw("json")
