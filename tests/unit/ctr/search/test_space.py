"""Search spaces are parsed, never evaluated, and mistakes are reported with their key."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

import elasticdl.keras.runtime  # noqa: F401 - before the tests, because TensorFlow starts `uname` when it is imported
from elasticdl.ctr import config
from elasticdl.ctr.models import catalog
from elasticdl.ctr.search import space
from elasticdl.ctr.search.space import ChoiceDimension, RangeDimension
from elasticdl.errors import SpecError

LEAST = {"data": "clicks.csv", "label": "clicked", "model": "deepfm"}
PARAMS = catalog.MODELS_BY_NAME["deepfm"].declared_params


def parsed(**more: Any) -> config.CtrConfig:
    return config.parse_config({**LEAST, **more}, "ctr.yaml")


def test_ranges_and_lists_are_read() -> None:
    parsed = space.parse_space(
        {
            "learning_rate": "log(1e-4, 1e-2)",
            "dropout": "uniform(0, 0.5)",
            "layers": "integer(1, 4)",
            "embedding_dim": [8, 16],
        },
        "search",
    )

    assert parsed == {
        "learning_rate": RangeDimension(1e-4, 1e-2, is_log=True),
        "dropout": RangeDimension(0.0, 0.5),
        "layers": RangeDimension(1, 4, is_integer=True),
        "embedding_dim": ChoiceDimension((8, 16)),
    }


def test_commas_that_yaml_takes_for_its_own_are_given_back() -> None:
    text = "{learning_rate: log(1e-4, 1e-2), embedding_dim: [8, 16, 32], dropout: uniform(0, 0.5)}"

    parsed = space.parse_space(yaml.safe_load(text), "search")

    assert [str(dimension) for dimension in parsed.values()] == ["log(0.0001, 0.01)", "[8, 16, 32]", "uniform(0, 0.5)"]


def test_lists_of_lists_are_stored_as_text_and_come_back_as_they_were() -> None:
    choice = ChoiceDimension(([128, 64], [256], 7))

    assert choice.stored_values == ["[128, 64]", "[256]", 7]
    assert [choice.from_stored(stored) for stored in choice.stored_values] == [[128, 64], [256], 7]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("lag(1, 2)", "search.x: no range 'lag'; did you mean log?"),
        ("log(0, 1)", "expected the minimum above 0, then a larger maximum"),
        ("uniform(2, 1)", "expected the minimum, then a larger maximum"),
        ("uniform(1)", "expected two numbers"),
        ("uniform('a', 2)", "expected two numbers"),
        ("integer(1, 2.5)", "expected integers"),
        ("__import__('os').system('true')", "is not a range; expected log(1e-4, 1e-2)"),
        ("log(1 + 1, open('x'))", "is not a range"),
        (3, "3 is not a range"),
        ([], "leaves no choice"),
        ([8, 8], "has a value twice"),
        ([{"a": 1}], "expected numbers, texts and lists"),
    ],
)
def test_an_invalid_range_is_reported(value: Any, complaint: str) -> None:
    with pytest.raises(SpecError) as refused:
        space.parse_space({"x": value}, "search")
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (
            {"embeding_dim": [8, 16]},
            "search.embeding_dim: neither deepfm nor `training` has such a parameter; did you mean 'embedding_dim'?",
        ),
        ({"learning_rate": [0.1, -1]}, "search.learning_rate: -1: Input should be greater than 0"),
        ({"batch_size": "uniform(100, 200)"}, "expected integers, e.g. integer(256, 4096)"),
        ({"seed": [1, 2]}, "is not searched: the best seed is luck"),
        ({"epochs": [1, 2]}, "is not searched"),
    ],
)
def test_values_that_cannot_be_searched_are_reported(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SpecError) as refused:
        space.check_space(space.parse_space(values, "search"), parsed(), PARAMS, "search")
    assert complaint in str(refused.value)


@pytest.mark.parametrize("name", catalog.MODELS_BY_NAME)
def test_every_model_has_a_default_search_space(name: str) -> None:
    params = catalog.MODELS_BY_NAME[name].declared_params
    of = parsed(model=name)
    defaults = space.default_space(of, params)

    space.check_space(defaults, of, params, "search")
    assert "learning_rate" in defaults
    assert params == tuple(catalog.MODELS_BY_NAME[name].params), "read in the source as they are"


def test_parameters_that_the_user_has_set_are_not_searched_unless_named() -> None:
    of = parsed(params={"embedding_dim": 4}, training={"learning_rate": 0.1})

    assert set(space.default_space(of, PARAMS)) == {"dropout", "hidden_units"}


def test_values_go_where_they_belong() -> None:
    changed = space.apply_values(
        parsed(params={"hidden_units": [8]}), {"learning_rate": 0.5, "batch_size": 64, "embedding_dim": 32}
    )

    assert (changed.training.learning_rate, changed.training.batch_size) == (0.5, 64)
    assert changed.params == {"hidden_units": [8], "embedding_dim": 32}
