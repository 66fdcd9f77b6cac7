"""The catalog of the zoo describes its models as they are, and imports no framework for it."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from elasticdl.ctr.models import catalog as ctr_models
from elasticdl.errors import SpecError
from elasticdl.model.source import detect_framework, parse_source
from elasticdl.zoo import catalog
from elasticdl.zoo.catalog import CTR, MODELS, ZooModel

ROOT = Path(__file__).parents[3]
MODEL_FILES = [model for model in MODELS if model.group != CTR]
PACKAGE = catalog.ZOO_DIRECTORY.parent


def test_every_model_file_of_the_zoo_is_listed() -> None:
    files = {
        str(path.relative_to(PACKAGE))
        for path in catalog.ZOO_DIRECTORY.rglob("*.py")
        if "template" not in path.parts
        and re.search(r"def dataset_fn|^    dataset_fn,$", path.read_text(), re.MULTILINE)
    }

    assert files == {model.file for model in MODEL_FILES} | {"zoo/ctr/ctr.py"}  # it trains the CTR models


def test_names_are_unique() -> None:
    assert len(catalog.MODELS_BY_NAME) == len(MODELS)


@pytest.mark.parametrize(
    "model", [model for model in MODELS if model.framework == "torch"], ids=lambda model: model.name
)
def test_parameters_read_from_the_source_are_those_of_the_model(model: ZooModel) -> None:
    if model.group == CTR:
        assert model.params == ctr_models.MODELS_BY_NAME[model.name].params
        return
    module = import_module(f"elasticdl.{model.file.removesuffix('.py').replace('/', '.')}")
    parameters = inspect.signature(getattr(module, model.function)).parameters.values()
    assert model.params == {parameter.name: parameter.default for parameter in parameters}


@pytest.mark.parametrize("model", MODEL_FILES, ids=lambda model: model.name)
def test_a_model_file_names_the_command_that_trains_it(model: ZooModel) -> None:
    *_, training = model.commands
    definition = f"{model.file.removeprefix('zoo/').removesuffix('.py').replace('/', '.')}.{model.function}"

    assert training.startswith(f"elasticdl train --model_zoo={catalog.ZOO_DIRECTORY} --model_def={definition} ")
    assert "--training_data=" in training and "\\" not in training
    assert detect_framework(parse_source(model.path)) == model.framework


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean deepfm"):
        catalog.find_model("deepmf")
    with pytest.raises(SpecError, match="elasticdl zoo list"):
        catalog.find_model("zzz")


def test_the_tables_of_the_docs_are_those_of_the_catalog() -> None:
    tables = (ROOT / "docs" / "model-zoo.md").read_text().partition("## All of them\n\n")[2]

    assert tables == catalog.render_tables(), "run `python -m elasticdl.zoo.catalog`"
