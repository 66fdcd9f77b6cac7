"""What a search may choose: parsed and never evaluated; what is wrong is told with its place."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

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
    found = space.parse_space(
        {
            "learning_rate": "log(1e-4, 1e-2)",
            "dropout": "uniform(0, 0.5)",
            "layers": "integer(1, 4)",
            "embedding_dim": [8, 16],
        },
        "search",
    )

    assert found == {
        "learning_rate": RangeDimension(1e-4, 1e-2, is_log=True),
        "dropout": RangeDimension(0.0, 0.5),
        "layers": RangeDimension(1, 4, is_integer=True),
        "embedding_dim": ChoiceDimension((8, 16)),
    }


def test_commas_that_yaml_takes_for_its_own_are_given_back() -> None:
    text = "{learning_rate: log(1e-4, 1e-2), embedding_dim: [8, 16, 32], dropout: uniform(0, 0.5)}"

    found = space.parse_space(yaml.safe_load(text), "search")

    assert [str(one) for one in found.values()] == ["log(0.0001, 0.01)", "[8, 16, 32]", "uniform(0, 0.5)"]


def test_lists_of_lists_are_stored_as_text_and_come_back_as_they_were() -> None:
    choice = ChoiceDimension(([128, 64], [256], 7))

    assert choice.stored_values == ["[128, 64]", "[256]", 7]
    assert [choice.from_stored(one) for one in choice.stored_values] == [[128, 64], [256], 7]


@pytest.mark.parametrize(
    ("given", "complaint"),
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
def test_what_is_no_range_is_told(given: Any, complaint: str) -> None:
    with pytest.raises(SpecError) as refused:
        space.parse_space({"x": given}, "search")
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("given", "complaint"),
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
def test_what_cannot_be_chosen_is_told(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SpecError) as refused:
        space.check_space(space.parse_space(given, "search"), parsed(), PARAMS, "search")
    assert complaint in str(refused.value)


@pytest.mark.parametrize("name", catalog.MODELS_BY_NAME)
def test_every_model_has_a_space_where_nothing_is_said(name: str) -> None:
    params = catalog.MODELS_BY_NAME[name].declared_params
    of = parsed(model=name)
    found = space.default_space(of, params)

    space.check_space(found, of, params, "search")
    assert "learning_rate" in found
    assert params == tuple(catalog.MODELS_BY_NAME[name].params), "read in the source as they are"


def test_what_a_person_has_set_is_not_searched_unless_they_ask() -> None:
    of = parsed(params={"embedding_dim": 4}, training={"learning_rate": 0.1})

    assert set(space.default_space(of, PARAMS)) == {"dropout", "hidden_units"}


def test_values_go_where_they_belong() -> None:
    found = space.apply_values(
        parsed(params={"hidden_units": [8]}), {"learning_rate": 0.5, "batch_size": 64, "embedding_dim": 32}
    )

    assert (found.training.learning_rate, found.training.batch_size) == (0.5, 64)
    assert found.params == {"hidden_units": [8], "embedding_dim": 32}
