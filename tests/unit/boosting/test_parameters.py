"""Parameters of trees: XGBoost knows each of them, and no other name is accepted."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from xgboost import Booster, DMatrix

from elasticdl.boosting.parameters import TreeParameters, parse_parameters
from elasticdl.errors import SpecError

OTHERS: dict[str, Any] = {  # than the defaults, for each parameter
    "objective": "count:poisson", "base_score": 0.7, "seed": 3, "eta": 0.1, "gamma": 0.5, "max_depth": 4,
    "max_leaves": 9, "grow_policy": "lossguide", "min_child_weight": 2.0, "max_delta_step": 0.5, "subsample": 0.5,
    "colsample_bytree": 0.9, "colsample_bylevel": 0.8, "colsample_bynode": 0.7, "lambda": 2.0, "alpha": 0.1,
    "max_bin": 32, "num_parallel_tree": 2, "monotone_constraints": [1, 0], "interaction_constraints": "[[0, 1]]",
    "max_cat_to_onehot": 3, "max_cat_threshold": 5,
}  # fmt: skip


def train(params: TreeParameters) -> dict[str, Any]:
    """A round with these parameters; a parameter that XGBoost does not use is an error."""
    rows = np.random.default_rng(0).random((50, 2))
    data = DMatrix(rows, rows[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        booster = Booster(params.to_xgboost(1, "cpu"), [data])
        booster.update(data, 0)
    return booster.attributes()


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_xgboost_knows_every_parameter(name: str) -> None:
    lossguide = {"max_leaves": 8} if name == "grow_policy" else {}
    train(parse_parameters({name: OTHERS[name]} | lossguide))


def test_all_parameters_together() -> None:
    params = parse_parameters(OTHERS)

    train(params)
    assert params.lambda_ == 2.0 and params.to_xgboost(3, "cpu")["lambda"] == 2.0
    assert params.to_xgboost(3, "cpu")["nthread"] == 3
    assert "subsample" not in params.to_xgboost(1, "cpu"), "the gradients sample the rows"
    assert params.to_xgboost(1, "cpu", reproducible=False)["subsample"] == 0.5


def test_the_defaults_are_those_of_xgboost() -> None:
    train(parse_parameters({}))
    own = DMatrix(np.random.default_rng(0).random((50, 2)), np.arange(50))

    def grow(params: dict[str, Any]) -> bytes:
        booster = Booster(params | {"nthread": 1, "seed_per_iteration": True}, [own])
        for round_ in range(3):
            booster.update(own, round_)
        return bytes(booster.save_raw("json"))

    assert grow(parse_parameters({}).to_xgboost(1, "cpu")) == grow({"tree_method": "hist", "device": "cpu"})


def test_other_names_of_a_parameter_are_known() -> None:
    params = parse_parameters({"learning_rate": 0.1, "reg_lambda": 3, "eval_metric": "auc"})

    assert (params.eta, params.lambda_, params.eval_metric) == (0.1, 3.0, ("auc",))


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"max_dept": 3}, "max_dept: no parameter of XGBoost's trees; did you mean 'max_depth'?"),
        ({"eta": 0.1, "learning_rate": 0.2}, "learning_rate: given twice, as eta too"),
        ({"nthread": 4}, "nthread: use --threads"),
        ({"device": "cuda"}, "device: use --device"),
        ({"booster": "dart"}, "booster: only trees (gbtree) are elastic"),
        ({"n_estimators": 100}, "n_estimators: use rounds"),
        ({"subsample": 0}, "subsample: input should be greater than 0; received 0"),
        ({"eta": math.nan}, "eta: input should be a finite number; received NaN"),
        ({"max_bin": "many"}, "max_bin: input should be a valid integer"),
        ({"tree_method": "exact"}, "tree_method: input should be 'auto' or 'hist'; received 'exact'"),
        ({"objective": "multi:softprob"}, "num_class: multi:softprob needs the number of classes, at least 2"),
        ({"num_class": 3}, "num_class: reg:squarederror has no classes"),
        ({"max_depth": 0}, "max_depth: 0 means no limit, which needs grow_policy=lossguide and max_leaves"),
        ({"max_depth": 0, "grow_policy": "lossguide"}, "max_leaves: trees need a limit"),
        ({"scale_pos_weight": 2.0}, "scale_pos_weight: reg:squarederror has no positive rows; give weights instead"),
        ({"monotone_constraints": 1}, "monotone_constraints: expected a list"),
    ],
)
def test_a_wrong_parameter_is_an_error_that_says_what_to_do(params: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse_parameters(params)

    assert words in str(raised.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(SpecError) as raised:
        parse_parameters({"max_dept": 3, "nthread": 4, "subsample": 7})

    assert len(str(raised.value).splitlines()) == 3
