"""Gradients on a grid: those of XGBoost, the same bits wherever a row lies, and exact sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from xgboost import Booster, DMatrix

from elasticdl.boosting.gradients import (
    GRID_BITS,
    OBJECTIVES,
    Floats,
    GridObjective,
    LabelledPart,
    grid_shift,
    sampling_key,
)
from elasticdl.errors import LossNotFinite, SpecError
from tests.properties import examples

ROWS = 3000


def alone(largest: tuple[float, float]) -> tuple[float, float]:
    return largest


def make_rows(objective: str, classes: int = 1) -> tuple[Floats, Floats]:
    """Margins, and labels that suit the objective."""
    draw = np.random.default_rng(1)
    margins = draw.normal(scale=2.0, size=(ROWS, classes) if classes > 1 else ROWS).astype(np.float32)
    labels: NDArray[Any]
    if objective.startswith("multi:"):
        labels = draw.integers(classes, size=ROWS)
    elif objective.startswith("binary:") or objective == "reg:logistic":
        labels = draw.integers(2, size=ROWS)
    elif objective in ("count:poisson", "reg:tweedie"):
        labels = draw.poisson(2.0, size=ROWS)
    else:
        labels = draw.gamma(2.0, size=ROWS)
    return margins, labels.astype(np.float32)


def params_of(objective: str) -> dict[str, Any]:
    return {"objective": objective} | ({"num_class": 4} if objective.startswith("multi:") else {})


def xgboost_sums(params: dict[str, Any], margins: Floats, labels: Floats, weights: Floats) -> tuple[float, float]:
    """The sums of XGBoost's own gradients and hessians, from the root of a tree that has one leaf."""
    data = DMatrix(np.zeros((len(labels), 1), np.float32), labels, weight=weights, base_margin=margins)
    plain = {"max_depth": 1, "lambda": 0.0, "eta": 1.0, "base_score": 0.5, "min_child_weight": 0.0, "nthread": 1}
    booster = Booster(params | plain, [data])
    booster.update(data, 0)
    frame = booster.trees_to_dataframe()
    root = frame.iloc[0]
    return -float(root["Gain"]) * float(root["Cover"]), float(root["Cover"])


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_gradients_are_those_of_xgboost(objective: str) -> None:
    params = params_of(objective) | ({"scale_pos_weight": 3.0} if "logi" in objective else {})
    classes = params.get("num_class", 1)
    margins, labels = make_rows(objective, classes)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, ROWS).astype(np.float32)
    grid = GridObjective.from_params(params, seed=0)

    gradients, hessians = grid.compute(LabelledPart(0, labels, weights), margins, 0, alone)

    first = gradients if classes == 1 else gradients[:, 0]
    second = hessians if classes == 1 else hessians[:, 0]
    expected_gradient, expected_hessian = xgboost_sums(params, margins, labels, weights)
    scale = float(np.abs(first).sum())
    assert math.isclose(float(first.sum(dtype=np.float64)), expected_gradient, abs_tol=2e-5 * scale)
    assert math.isclose(float(second.sum(dtype=np.float64)), expected_hessian, rel_tol=2e-5)


@given(st.sampled_from(sorted(OBJECTIVES)), st.integers(1, ROWS - 1), st.integers(1, 4), st.sampled_from([1.0, 0.6]))
@settings(max_examples=examples(50))
def test_a_row_has_the_same_bits_in_every_part(objective: str, cut: int, threads: int, subsample: float) -> None:
    params = params_of(objective) | {"subsample": subsample}
    margins, labels = make_rows(objective, params.get("num_class", 1))
    grid = GridObjective.from_params(params, seed=5)
    largest: list[tuple[float, float]] = []

    def find_largest(own: tuple[float, float]) -> tuple[float, float]:
        largest.append(own)
        return largest[0]  # of the whole, which comes first

    whole = grid.compute(LabelledPart(0, labels), margins, 7, find_largest)
    parts = [
        grid.compute(LabelledPart(first, labels[first:last]), margins[first:last], 7, find_largest, threads)
        for first, last in ((0, cut), (cut, ROWS))
    ]

    for number in range(2):
        assert np.array_equal(np.concatenate([part[number] for part in parts]), whole[number])


@given(st.floats(1e-30, 1e30), st.integers(0, 100))
@settings(max_examples=examples(100))
def test_sums_on_the_grid_do_not_depend_on_their_order(scale: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    margins = (draw.normal(size=2000) * scale).astype(np.float32)
    grid = GridObjective.from_params({"objective": "reg:squarederror"}, seed=0)
    labels = np.zeros_like(margins)

    gradients, _ = grid.compute(LabelledPart(0, labels), margins, 0, alone)

    _, exponent = math.frexp(float(np.abs(margins).max()))
    step = 2.0 ** (exponent - GRID_BITS)
    multiples = gradients.astype(np.float64) / step
    assert np.array_equal(multiples, np.round(multiples))
    assert np.abs(gradients - margins).max() <= step / 2
    forwards, backwards = (float(np.cumsum(order.astype(np.float64))[-1]) for order in (gradients, gradients[::-1]))
    assert forwards == backwards


def test_the_shift_leaves_the_largest_value_itself() -> None:
    for largest in (1.0, 0.75, 1e-20, 3e30):
        value, shift = np.float32(largest), np.float32(grid_shift(float(np.float32(largest))))
        assert abs((value + shift) - shift - value) <= value * 2.0**-GRID_BITS


def test_a_sample_has_the_share_that_was_asked_for_and_differs_by_round() -> None:
    grid = GridObjective.from_params({"objective": "reg:squarederror", "subsample": 0.3}, seed=1)
    part = LabelledPart(10_000, np.zeros(100_000, np.float32))
    margins = np.ones(100_000, np.float32)

    first, second = (grid.compute(part, margins, round_, alone)[0] > 0 for round_ in (0, 1))

    assert abs(first.mean() - 0.3) < 0.01 and abs(second.mean() - 0.3) < 0.01
    assert abs((first & second).mean() - 0.09) < 0.01, "independent of each other"
    assert sampling_key(1, 0) != sampling_key(0, 1)


def test_a_gradient_that_is_no_number_is_an_error() -> None:
    grid = GridObjective.from_params({"objective": "reg:squarederror"}, seed=0)
    labels = np.array([0.0, math.nan, 1.0], np.float32)

    with pytest.raises(LossNotFinite, match="round 3: a gradient is nan"):
        grid.compute(LabelledPart(0, labels), np.zeros(3, np.float32), 3, alone)


def test_rows_without_any_gradient_stay_zero() -> None:
    grid = GridObjective.from_params({"objective": "reg:squarederror"}, seed=0)

    gradients, hessians = grid.compute(LabelledPart(0, np.zeros(3, np.float32)), np.zeros(3, np.float32), 0, alone)

    assert gradients.tolist() == [0.0, 0.0, 0.0] and hessians.tolist() == [1.0, 1.0, 1.0]


def test_an_objective_without_a_formula_names_those_that_have_one() -> None:
    with pytest.raises(SpecError, match=r"rank:ndcg has no reproducible form, only .*reproducible=false"):
        GridObjective.from_params({"objective": "rank:ndcg"}, seed=0)
